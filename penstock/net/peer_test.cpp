// One connection of a mesh, whose other end is a plain socket.
#include "penstock/net/peer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace penstock::net {
namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;

constexpr Tag kTag{.run = 1};
constexpr milliseconds kSilence(150);

std::vector<std::byte> sizes_of(uint64_t bytes) {
  std::vector<std::byte> text(sizeof bytes);
  std::memcpy(text.data(), &bytes, sizeof bytes);
  return text;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class PeerTest : public ::testing::Test {
 protected:
  PeerTest() : other_(other_end_) {
    tcp::acceptor acceptor(here_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    other_.connect(acceptor.local_endpoint());
    state_.handlers = {.note = [this](int, const std::string& note) { notes_.push_back(note); },
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

  void look_for(milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) peer_->look();
  }
  void look_until(const std::function<bool()>& is_over) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!is_over() && std::chrono::steady_clock::now() < end) peer_->look();
    EXPECT_TRUE(is_over());
  }

  template <class Message>
  void begin(const Message& message) {
    write({.kind = FrameKind::Sizes, .tag = kTag, .bytes = sizeof(uint64_t)},
          sizes_of(message.content.size()));
    write({.kind = FrameKind::Piece, .tag = kTag, .bytes = message.content.size()});
  }
  void send_bytes(std::span<const std::byte> bytes) {
    asio::write(other_, asio::buffer(bytes.data(), bytes.size()));
  }
  /// All that lies at the other end.
  std::vector<std::byte> what_came() {
    std::vector<std::byte> bytes(other_.available());
    asio::read(other_, asio::buffer(bytes));
    return bytes;
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
  std::vector<std::string> notes_;
  std::string lost_;
  bool is_over_ = false;
};

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

// ---- what threads besides the mesh's do: nobody runs its side meanwhile

/// A message that the peer is to send.
struct Expected {
  explicit Expected(size_t bytes) : received(bytes), content(bytes) {
    for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(i % 251);
  }
  Place place() {
    return [this](const std::vector<uint64_t>&) { return std::vector<Memory>{Memory(received)}; };
  }
  std::span<const std::byte> first(size_t bytes) const { return std::span(content).first(bytes); }
  std::span<const std::byte> rest(size_t after) const { return std::span(content).subspan(after); }

  std::vector<std::byte> received;
  std::vector<std::byte> content;
  std::shared_ptr<Transfer> transfer = std::make_shared<Transfer>();
};

TEST_F(PeerTest, AThreadThatWaitsBringsItsMessage) {
  Expected message(5000);
  peer_->receive(kTag, message.place(), message.transfer);
  begin(message);
  send_bytes(message.content);
  look_until([&] { return message.transfer->is_done(); });
  EXPECT_EQ(message.received, message.content);
}

TEST_F(PeerTest, WhatIsNoMessageIsLeftToTheMesh) {
  Expected message(5000);
  peer_->receive(kTag, message.place(), message.transfer);
  write({.kind = FrameKind::Note, .bytes = 5}, bytes_of("first"));
  begin(message);
  send_bytes(message.content);
  look_for(milliseconds(50));
  EXPECT_TRUE(notes_.empty());
  EXPECT_FALSE(message.transfer->is_done());
  run_until([&] { return message.transfer->is_done(); });
  EXPECT_THAT(notes_, ::testing::ElementsAre("first"));
  EXPECT_EQ(message.received, message.content);
}

TEST_F(PeerTest, AShortMessageGoesAtOnce) {
  const std::vector<std::byte> content = bytes_of("a short message");
  const auto transfer = std::make_shared<Transfer>();
  peer_->send({.tag = kTag, .parts = {Bytes(content)}, .transfer = transfer});
  EXPECT_FALSE(transfer->is_done()) << "before its receive is posted";
  write({.kind = FrameKind::Posted, .tag = kTag});
  look_until([&] { return transfer->is_done(); });
  const std::vector<std::byte> came = what_came();
  ASSERT_GE(came.size(), content.size());
  EXPECT_TRUE(std::equal(content.rbegin(), content.rend(), came.rbegin()));
}

// The mesh waits until 128 KiB have come; the other thread has taken 100 of them.
TEST_F(PeerTest, TheMeshGoesOnWhereAThreadThatWaitedStopped) {
  constexpr size_t kTaken = size_t{100} << 10;
  Expected message(size_t{160} << 10);
  peer_->receive(kTag, message.place(), message.transfer);
  begin(message);
  here_.run_for(milliseconds(50));
  send_bytes(message.first(kTaken));
  look_until([&] {
    return std::equal(message.content.begin(), message.content.begin() + kTaken,
                      message.received.begin());
  });
  send_bytes(message.rest(kTaken));
  for (int i = 0; i < 500 && !message.transfer->is_done(); ++i) here_.run_for(milliseconds(10));
  EXPECT_TRUE(message.transfer->is_done());
  EXPECT_EQ(message.received, message.content);
}

TEST_F(PeerTest, AFrameOfNoKindIsToldOnTheMeshsThread) {
  write({.kind = static_cast<FrameKind>(999)});
  look_for(milliseconds(50));
  EXPECT_EQ(lost_, "");
  run_until([] { return false; });
  EXPECT_EQ(lost_, "sent a frame of an unknown kind");
}

TEST_F(PeerTest, APieceThatNobodyExpectsIsToldOnTheMeshsThread) {
  write({.kind = FrameKind::Piece, .tag = kTag, .bytes = 8});
  look_for(milliseconds(50));
  EXPECT_EQ(lost_, "");
  run_until([] { return false; });
  EXPECT_THAT(lost_, ::testing::HasSubstr("sent"));
}

TEST_F(PeerTest, OneThatSendsNothingIsLost) {
  beat_every(milliseconds(15), kSilence);
  run_until([] { return false; });
  EXPECT_THAT(lost_, ::testing::HasSubstr("has not answered for 0.1"));
}

}  // namespace
}  // namespace penstock::net
