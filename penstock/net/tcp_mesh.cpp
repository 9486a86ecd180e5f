#include "penstock/net/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <mutex>
#include <thread>

#include "penstock/net/peer.h"
#include "penstock/net/rendezvous.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/process/core_needs.h"

namespace penstock::net {

namespace {

using Clock = std::chrono::steady_clock;

/// Signs of life per silence that is allowed.
constexpr int kBeatsPerSilence = 5;
constexpr std::chrono::seconds kGoodbye{2};
constexpr std::chrono::milliseconds kLingerStep{5};
/// Larger messages are sent by the mesh's thread, while the one that has made them computes on;
/// but not to a peer that copies them itself.
constexpr uint64_t kMostDirect = 64 << 10;

void validate(const MeshOptions& options) {
  if (options.ranks < 1)
    throw ConfigError(fmt::format("a job has at least 1 rank, found {}", options.ranks));
  if (options.rank < 0 || options.rank >= options.ranks) {
    throw ConfigError(
        fmt::format("the rank must be 0 to {}, found {}", options.ranks - 1, options.rank));
  }
  if (options.ranks > 1 && options.port == 0)
    throw ConfigError("the port of rank 0 must be 1 to 65535, found 0");
  if (options.patience.count() <= 0 || options.silence.count() <= 0 || options.piece_bytes == 0)
    throw ConfigError("the times and the size of pieces of a mesh must be greater than 0");
}

class TcpMesh : public Mesh {
 public:
  explicit TcpMesh(const MeshOptions& options);
  ~TcpMesh() override;
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  int rank() const override { return options_.rank; }
  int ranks() const override { return options_.ranks; }
  void start(Handlers handlers) override;
  void tell(int peer, std::string note) override;
  std::shared_ptr<Transfer> send(int peer, Tag tag, std::vector<Bytes> parts,
                                 std::shared_ptr<const void> keep, int urgency) override;
  std::shared_ptr<Transfer> receive(int peer, Tag tag, Place place) override;
  void close_run(uint32_t run) override;
  bool look() override;
  bool begin_watch() override;
  void end_watch(bool sleeps) override;
  void carry_by(std::unique_ptr<Carrier> carrier, size_t smallest) override;
  std::string own_address() const override;
  Traffic traffic() const override {
    return {state_.sent,
            state_.received,
            state_.sent_by_memory,
            state_.received_by_memory,
            state_.sent_by_carrier,
            state_.received_by_carrier};
  }
  ClockOffset clock_offset(int peer) const override {
    return peer == options_.rank ? ClockOffset{} : at(peer).offset();
  }

 private:
  Peer& at(int peer) const {
    PENSTOCK_CHECK(peer >= 0 && peer < options_.ranks && peer != options_.rank, peer);
    return *peers_[static_cast<size_t>(peer)];
  }
  /// On the mesh's thread, later.
  template <class Act>
  void post(Act act);
  /// At once where this is possible: a thread that computes on would keep its core from the mesh's.
  template <class Act>
  void act(Act act);
  void beat();
  void say_goodbye();
  void linger(Clock::time_point deadline);
  void run();

  MeshOptions options_;
  /// Whether threads besides the mesh's may use connections.
  std::atomic<bool> is_open_to_all_{false};
  MeshState state_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer timer_;
  Clock::time_point next_beat_;
  bool leaving_ = false;
  std::vector<std::shared_ptr<Peer>> peers_;  ///< by rank; null at this one's
  std::thread thread_;
};

TcpMesh::TcpMesh(const MeshOptions& options)
    : options_(options), work_(asio::make_work_guard(io_)), timer_(io_) {
  validate(options);
  state_.piece_bytes = options.piece_bytes;
  state_.same_host_memory = options.same_host_memory;
  state_.same_host_bytes = options.same_host_bytes;
  peers_.resize(static_cast<size_t>(options.ranks));
  if (options.ranks == 1) return;
  std::vector<std::unique_ptr<Stream>> streams = meet(io_, options);
  for (int r = 0; r < options.ranks; ++r) {
    if (r == options.rank) continue;
    peers_[static_cast<size_t>(r)] =
        std::make_shared<Peer>(std::move(streams[static_cast<size_t>(r)]), r, state_);
  }
}

void TcpMesh::start(Handlers handlers) {
  PENSTOCK_CHECK(!thread_.joinable(), "a mesh is started once");
  state_.handlers = std::move(handlers);
  io_.restart();
  post([this] {
    bool encrypted = false;
    for (const auto& peer : peers_) {
      if (!peer) continue;
      peer->start();
      encrypted = encrypted || peer->is_encrypted();
    }
    next_beat_ = Clock::now();
    beat();
    is_open_to_all_ = !encrypted;
  });
  thread_ = std::thread([this] { run(); });
}

void TcpMesh::run() {
  const CoreNeed need(CoreNeed::Kind::OtherProcess, options_.other_hosts ? 0 : options_.ranks - 1);
  io_.run();
}

template <class Act>
void TcpMesh::post(Act act) {
  asio::post(io_, [this, act = std::move(act)]() mutable {
    const std::lock_guard lock(state_.mutex);
    act();
  });
}

template <class Act>
void TcpMesh::act(Act act) {
  state_.mutex.add([act = std::move(act)]() mutable { act(); });
  if (is_open_to_all_ && state_.mutex.settle()) return;
  post([] {});
}

bool TcpMesh::look() {
  if (!is_open_to_all_) return false;
  const std::unique_lock lock(state_.mutex, std::try_to_lock);
  bool moved = false;
  if (!lock.owns_lock()) return moved;
  for (const auto& peer : peers_) moved = (peer && peer->look()) || moved;
  return moved;
}

bool TcpMesh::begin_watch() {
  if (!is_open_to_all_) return false;
  ++state_.watchers;
  for (const auto& peer : peers_) {
    if (peer) peer->begin_watch();
  }
  return true;
}

void TcpMesh::end_watch(bool sleeps) {
  for (const auto& peer : peers_) {
    if (peer) peer->end_watch();
  }
  if (sleeps) {
    // A peer whose thread looks may have no core to look with.
    act([this] {
      for (const auto& peer : peers_) {
        if (peer) peer->ring_for_unread();
      }
    });
  }
  if (--state_.watchers > 0) return;
  // What came after the last look, and what it left.
  const auto is_left = [](const auto& peer) { return peer && peer->has_input(); };
  if (state_.to_copy == 0 && !std::any_of(peers_.begin(), peers_.end(), is_left)) return;
  post([this] {
    for (const auto& peer : peers_) {
      if (peer) peer->go_on();
    }
  });
}

void TcpMesh::beat() {
  // Its timer may have run out just before the goodbye took it.
  if (leaving_) return;
  const auto pause = std::max(options_.silence / kBeatsPerSilence, std::chrono::milliseconds(1));
  // Much later than planned: this process was stopped itself, and has not read since.
  const bool was_stopped = Clock::now() > next_beat_ + 2 * pause;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    if (was_stopped) peer->forgive();
    peer->beat(options_.silence);
  }
  next_beat_ = Clock::now() + pause;
  timer_.expires_at(next_beat_);
  timer_.async_wait([this](const asio::error_code& error) {
    const std::lock_guard lock(state_.mutex);
    if (!error) beat();
  });
}

void TcpMesh::tell(int peer, std::string note) {
  act([to = &at(peer), note = std::move(note)] { to->tell(note); });
}

std::shared_ptr<Transfer> TcpMesh::send(int peer, Tag tag, std::vector<Bytes> parts,
                                        std::shared_ptr<const void> keep, int urgency) {
  auto transfer = std::make_shared<Transfer>(this);
  uint64_t bytes = 0;
  for (const Bytes& part : parts) bytes += part.size();
  auto send = [to = &at(peer), tag, parts = std::move(parts), keep = std::move(keep), urgency,
               transfer]() mutable {
    to->send({.tag = tag,
              .parts = std::move(parts),
              .keep = std::move(keep),
              .urgency = urgency,
              .transfer = std::move(transfer)});
  };
  if (bytes > kMostDirect && !at(peer).is_read())
    post(std::move(send));
  else
    act(std::move(send));
  return transfer;
}

std::shared_ptr<Transfer> TcpMesh::receive(int peer, Tag tag, Place place) {
  auto transfer = std::make_shared<Transfer>(this);
  act([from = &at(peer), tag, place = std::move(place), transfer]() mutable {
    from->receive(tag, std::move(place), std::move(transfer));
  });
  return transfer;
}

void TcpMesh::close_run(uint32_t run) {
  post([this, run] {
    state_.closed_run = std::max(state_.closed_run, run);
    for (const auto& peer : peers_) {
      if (peer) peer->close_run(run);
    }
  });
}

void TcpMesh::carry_by(std::unique_ptr<Carrier> carrier, size_t smallest) {
  is_open_to_all_ = false;  // one thread calls a carrier
  post([this, carrier = std::move(carrier), smallest]() mutable {
    is_open_to_all_ = false;
    state_.carrier = std::move(carrier);
    state_.carrier_bytes = smallest;
    for (const auto& peer : peers_) {
      if (peer) peer->carry();
    }
  });
}

std::string TcpMesh::own_address() const {
  // A rank on the same host may have come over the loopback, where others cannot.
  std::string address;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    address = peer->local_address().to_string();
    if (!peer->local_address().is_loopback()) break;
  }
  return address;
}

void TcpMesh::say_goodbye() {
  leaving_ = true;
  for (const auto& peer : peers_) {
    if (peer) peer->leave();
  }
  work_.reset();
  linger(Clock::now() + kGoodbye);
}

void TcpMesh::linger(Clock::time_point deadline) {
  // The peers read the goodbye and close.
  const bool is_late = Clock::now() > deadline;
  bool open = false;
  for (const auto& peer : peers_) {
    if (peer && is_late) peer->drop();
    open = open || (peer && peer->is_open());
  }
  timer_.cancel();
  if (!open) return;
  timer_.expires_after(kLingerStep);
  timer_.async_wait([this, deadline](const asio::error_code& error) {
    const std::lock_guard lock(state_.mutex);
    if (!error) linger(deadline);
  });
}

TcpMesh::~TcpMesh() {
  if (!thread_.joinable()) return;
  post([this] { say_goodbye(); });
  thread_.join();
  if (state_.carrier) state_.carrier->close(/*orderly=*/!state_.is_broken);
}

}  // namespace

std::unique_ptr<Mesh> Mesh::connect(const MeshOptions& options) {
  return std::make_unique<TcpMesh>(options);
}

}  // namespace penstock::net
