// A rank of a mesh that is another process, and one that a test writes frame by frame.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "penstock/net/frame.h"
#include "penstock/net/frame_ring.h"
#include "penstock/net/mesh.h"
#include "penstock/net/same_host.h"
#include "penstock/net/testing_nodes.h"
#include "penstock/net/wire.h"

namespace penstock::net::testing_nodes {

/// Why a rank has lost its peer.
class Loss {
 public:
  Mesh::Handlers handlers() {
    return {.note = [](int, const std::string&) {},
            .lost =
                [this](int, std::string why) {
                  MutexLock lock(mutex_);
                  why_ = std::move(why);
                  changed_.notify_all();
                }};
  }
  /// Waits for it; empty: has not come.
  std::string why() {
    MutexLock lock(mutex_);
    changed_.wait_until(mutex_, soon(), [this] { return !why_.empty(); });
    return why_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::string why_ GUARDED_BY(mutex_);
};

/// Rank 1 as a child, which is killed at the end.
class Child {
 public:
  /// `body` gets the mesh once it has started; what it returns is not looked at.
  template <class Body>
  Child(MeshOptions options, Body body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    options.rank = 1;
    const auto mesh = Mesh::connect(options);
    mesh->start({.note = [](int, const std::string&) {}, .lost = [](int, const std::string&) {}});
    body(*mesh);
    while (true) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void end() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

/// Rank 1, which shares the process of rank 0 and says what it is told to.
class Puppet {
 public:
  explicit Puppet(const MeshOptions& options = {.piece_bytes = 1000, .same_host_bytes = 1})
      : options_(options) {
    options_.ranks = 2;
    options_.port = free_port();
    std::jthread first([this] { mesh_ = Mesh::connect(options_); });
    connect_to_mesh();
    first.join();
    mesh_->start(loss_.handlers());
  }
  ~Puppet() { hang_up(); }
  void hang_up() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  Mesh& mesh() { return *mesh_; }
  /// Returns when rank 0 has said goodbye and this one has hung up, or after two seconds.
  void end_mesh() { mesh_.reset(); }
  std::string loss() { return loss_.why(); }
  const Seal& nonce() const { return nonce_; }

  void write(const FrameHeader& header, std::string_view behind = {}) {
    std::string bytes(sizeof header, '\0');
    FrameHeader complete = header;
    if (!behind.empty()) complete.bytes = behind.size();
    std::memcpy(bytes.data(), &complete, sizeof complete);
    bytes += behind;
    ASSERT_EQ(::write(socket_, bytes.data(), bytes.size()), std::ssize(bytes));
  }
  /// The next frame that is no sign of life.
  std::pair<FrameHeader, std::string> read() {
    while (true) {
      FrameHeader header;
      read_exactly(&header, sizeof header);
      std::string behind;
      if (header.kind == FrameKind::Process || header.kind == FrameKind::Offer ||
          header.kind == FrameKind::Sizes || header.kind == FrameKind::Piece ||
          header.kind == FrameKind::Note) {
        behind.resize(header.bytes);
        read_exactly(behind.data(), behind.size());
      }
      if (header.kind != FrameKind::Ping && header.kind != FrameKind::Pong) return {header, behind};
    }
  }
  FrameKind read_kind() { return read().first.kind; }

  /// Lets rank 0 read this one.
  void be_read() {
    write({.kind = FrameKind::Process}, to_wire(own_card(nonce_)));
    write({.kind = FrameKind::Look});
    ASSERT_EQ(read_kind(), FrameKind::Process);
    ASSERT_EQ(read_kind(), FrameKind::Look);
    ASSERT_EQ(read_kind(), FrameKind::Reads);
  }
  /// The card that rank 0 sends first.
  ProcessCard read_card() {
    const auto [header, text] = read();
    EXPECT_EQ(header.kind, FrameKind::Process);
    return from_wire<ProcessCard>(text);
  }
  /// The same as be_read(), with frames through shared memory in both directions from now on.
  void be_linked() { be_linked(read_card()); }
  /// After read_card(): in the directions for which there is memory. Rank 0's frames have none
  /// unless `makes_ring`.
  void be_linked(const ProcessCard& theirs, bool makes_ring = true) {
    ProcessCard card = own_card(nonce_);
    if (makes_ring) {
      FrameRing ring = FrameRing::make();
      card.ring = ring.descriptor();
      in_ = RingReader(std::move(ring));
    }
    write({.kind = FrameKind::Process}, to_wire(card));
    write({.kind = FrameKind::Look});
    out_ = RingWriter(FrameRing::map(theirs.pid, theirs.ring));
    ASSERT_EQ(out_.is_open(), theirs.ring >= 0);
    ASSERT_EQ(read_kind(), FrameKind::Look);
    ASSERT_EQ(read_kind(), FrameKind::Reads);
    write({.kind = FrameKind::Reads});
  }
  /// Through shared memory.
  void put(const FrameHeader& header, std::string_view behind = {}) {
    const std::array<Bytes, 1> parts = {std::as_bytes(std::span(behind))};
    ASSERT_TRUE(out_.put(header, {parts}));
    if (!out_.has_to_ring()) return;
    ++bells_;
    write({.kind = FrameKind::Bell});
  }
  /// How often put() had to ring.
  int bells() const { return bells_; }
  void put_silently(const FrameHeader& header) { ASSERT_TRUE(out_.put(header, {})); }
  /// Whether take() has one at once.
  bool has_frames() {
    in_.read([this](const FrameHeader& header, Bytes behind) {
      taken_.emplace_back(header, std::string(text_of(behind)));
    });
    return !taken_.empty();
  }
  /// The next frames in shared memory; fails the test when none come.
  std::pair<FrameHeader, std::string> take() {
    for (const auto deadline = soon(); !has_frames();) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "nothing has come through shared memory";
        return {};
      }
    }
    auto first = std::move(taken_.front());
    taken_.pop_front();
    return first;
  }
  FrameKind take_kind() { return take().first.kind; }
  SharedClaims& claims_out(uint32_t slot) { return out_.claims(slot); }
  SharedClaims& claims_in(uint32_t slot) { return in_.claims(slot); }

  /// Posts the receive of a message and returns the offer of it.
  Offer be_offered(Tag tag) {
    write({.kind = FrameKind::Posted, .tag = tag});
    const auto [header, text] = read();
    EXPECT_EQ(header.kind, FrameKind::Offer);
    EXPECT_EQ(header.tag, tag);
    return from_wire<Offer>(text);
  }
  void offer(Tag tag, const Seal& seal, const Block& block) {
    offer(tag, {.seal_address = seal.address(),
                .seal = seal.value(),
                .sizes = {block.size()},
                .addresses = {reinterpret_cast<uint64_t>(block.data())}});
  }
  void offer(Tag tag, const Offer& offer) {
    write({.kind = FrameKind::Offer, .tag = tag}, to_wire(offer));
  }

 private:
  void connect_to_mesh() {
    socket_ = connected_to(options_.port);
    ASSERT_TRUE(say_hello_by_hand(socket_, {.rank = 1, .ranks = 2, .port = 1}));
    // "PENSTOCK", accepted, the length of the list of ranks.
    std::array<char, 16> answer;
    read_exactly(answer.data(), answer.size());
    uint32_t bytes = 0;
    std::memcpy(&bytes, answer.data() + 12, sizeof bytes);
    std::string list(bytes, '\0');
    read_exactly(list.data(), list.size());
  }
  void read_exactly(void* to, size_t bytes) {
    if (bytes == 0) return;
    ASSERT_EQ(recv(socket_, to, bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }

  MeshOptions options_;
  Loss loss_;
  Seal nonce_;
  std::unique_ptr<Mesh> mesh_;
  int socket_ = -1;
  RingReader in_;
  RingWriter out_;
  int bells_ = 0;
  std::deque<std::pair<FrameHeader, std::string>> taken_;
};

}  // namespace penstock::net::testing_nodes
