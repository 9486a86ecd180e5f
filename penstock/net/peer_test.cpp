// One connection of a mesh, whose other end is a plain socket.
#include "penstock/net/peer.h"

#include <gmock/gmock.h>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace penstock::net {
namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;

class PeerTest : public ::testing::Test {
 protected:
  PeerTest() : other_(other_end_) {
    tcp::acceptor acceptor(here_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    other_.connect(acceptor.local_endpoint());
    state_.handlers = {.note = [](int, const std::string&) {},
                       .lost = [this](int, const std::string& why) { lost_ = why; }};
    state_.piece_bytes = size_t{1} << 20;
    state_.same_host_memory = false;
    peer_ = std::make_shared<Peer>(std::make_unique<Stream>(acceptor.accept()), 1, state_);
    peer_->start();
  }
  ~PeerTest() override { peer_->drop(); }

  /// Sends pings and looks for signs of life, as a mesh does.
  void beat_every(milliseconds pause, milliseconds silence) {
    timer_.expires_after(pause);
    timer_.async_wait([this, pause, silence](const asio::error_code& error) {
      if (error || !lost_.empty() || is_over_) return;
      peer_->beat(silence);
      beat_every(pause, silence);
    });
  }

  /// Runs the mesh's side until `is_over`, or the peer is lost.
  void run_until(const std::function<bool()>& is_over) {
    while (!is_over() && lost_.empty()) here_.run_for(milliseconds(10));
    is_over_ = true;
  }

  void write(const FrameHeader& header, const std::vector<std::byte>& behind = {}) {
    asio::write(other_, asio::buffer(&header, sizeof header));
    if (!behind.empty()) asio::write(other_, asio::buffer(behind));
  }

  asio::io_context here_;
  asio::io_context other_end_;
  tcp::socket other_;
  MeshState state_;
  std::shared_ptr<Peer> peer_;
  asio::steady_timer timer_{here_};
  std::string lost_;
  bool is_over_ = false;
};

constexpr Tag kTag{.run = 1};
constexpr milliseconds kSilence(150);

std::vector<std::byte> sizes_of(uint64_t bytes) {
  std::vector<std::byte> text(sizeof bytes);
  std::memcpy(text.data(), &bytes, sizeof bytes);
  return text;
}

TEST_F(PeerTest, ALargePieceMayTrickleInForLongerThanTheSilence) {
  std::vector<std::byte> content(size_t{384} << 10);
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i % 251);
  std::vector<std::byte> received(content.size());
  const auto transfer = std::make_shared<Transfer>();
  peer_->receive(
      kTag, [&](const std::vector<uint64_t>&) { return std::vector<Memory>{Memory(received)}; },
      transfer);
  std::thread slow([&] {
    write({.kind = FrameKind::Sizes, .tag = kTag, .bytes = sizeof(uint64_t)},
          sizes_of(content.size()));
    write({.kind = FrameKind::Piece, .tag = kTag, .bytes = content.size()});
    // The connection is readable after 128 KiB, which take 16 pauses: 320 ms.
    constexpr size_t kPart = size_t{8} << 10;
    for (size_t at = 0; at < content.size(); at += kPart) {
      asio::error_code ignored;
      asio::write(other_, asio::buffer(content.data() + at, kPart), ignored);
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  beat_every(milliseconds(15), kSilence);
  run_until([&] { return transfer->is_done(); });
  slow.join();
  EXPECT_EQ(lost_, "");
  EXPECT_EQ(received, content);
}

TEST_F(PeerTest, OneThatSendsNothingIsLost) {
  beat_every(milliseconds(15), kSilence);
  run_until([] { return false; });
  EXPECT_THAT(lost_, ::testing::HasSubstr("has not answered for 0.1"));
}

}  // namespace
}  // namespace penstock::net
