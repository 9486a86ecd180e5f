#include "penstock/runtime/fabric/c10d/c10d_carrier.h"

#include <ATen/Functions.h>

#include <array>
#include <deque>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// A piece ends before, or its peer is lost: the mesh notices who is silent. When this time is
/// over, Gloo closes all connections of the group.
constexpr std::chrono::hours kNever{24 * 365};
constexpr std::chrono::hours kCarrierIdle{24};

/// Waits for pieces of one lane and direction, the oldest first.
class PieceWaiter {
 public:
  struct Piece {
    int peer = 0;
    std::shared_ptr<const void> keep;
    net::Carrier::Done done;
    WorkPtr work;  ///< the last, so that it lets go of the memory before `keep` does
  };

  PieceWaiter() = default;
  ~PieceWaiter() { close(); }
  PieceWaiter(const PieceWaiter&) = delete;
  PieceWaiter& operator=(const PieceWaiter&) = delete;

  void add(Piece piece) {
    {
      MutexLock lock(mutex_);
      pieces_.push_back(std::move(piece));
      changed_.notify_all();
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }

  void lose(int peer) {
    MutexLock lock(mutex_);
    for (const Piece& piece : pieces_) {
      if (piece.peer == peer) piece.work->abort();
    }
  }

  void close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
      for (const Piece& piece : pieces_) piece.work->abort();
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    // Their destructors wait until nobody touches the memory.
    MutexLock lock(mutex_);
    pieces_.clear();
  }

 private:
  void run() {
    while (WorkPtr work = oldest()) {
      std::string error;
      try {
        if (!work->wait(kNever)) error = "given up";
      } catch (const c10::Error& failure) {
        error = failure.what_without_backtrace();
      } catch (const std::exception& failure) {
        error = failure.what();
      }
      // The last reference is the piece's: it goes before the memory does.
      work.reset();
      end_oldest(error);
    }
  }

  /// Waits for one; null when closed.
  WorkPtr oldest() {
    MutexLock lock(mutex_);
    while (!closed_ && pieces_.empty()) {
      changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kCarrierIdle,
                          [this]()
                              NO_THREAD_SAFETY_ANALYSIS { return closed_ || !pieces_.empty(); });
    }
    return closed_ ? WorkPtr() : pieces_.front().work;
  }

  void end_oldest(const std::string& error) {
    Piece piece;
    {
      MutexLock lock(mutex_);
      // close() destroys it.
      if (closed_) return;
      piece = std::move(pieces_.front());
      pieces_.pop_front();
    }
    piece.work.reset();
    piece.done(error);
  }

  Mutex mutex_;
  CondVar changed_;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::deque<Piece> pieces_ GUARDED_BY(mutex_);
  std::thread thread_;
};

class C10dCarrier : public net::Carrier {
 public:
  explicit C10dCarrier(std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups)
      : groups_(std::move(groups)) {
    PENSTOCK_CHECK(groups_.size() == net::kCarrierLanes, groups_.size());
  }

  void send(int peer, int lane, net::Carried<net::Bytes> piece, Done done) override {
    // Only read.
    auto* const data = const_cast<std::byte*>(piece.bytes.data());
    begin(peer, senders_[static_cast<size_t>(lane)], std::move(piece.keep), std::move(done), [&] {
      std::vector<at::Tensor> tensors{tensor_of(data, piece.bytes.size())};
      return group(lane).send(tensors, peer, slot_of(piece.number));
    });
  }
  void receive(int peer, int lane, net::Carried<net::Memory> piece, Done done) override {
    begin(peer, receivers_[static_cast<size_t>(lane)], std::move(piece.keep), std::move(done), [&] {
      std::vector<at::Tensor> tensors{tensor_of(piece.bytes.data(), piece.bytes.size())};
      return group(lane).recv(tensors, peer, slot_of(piece.number));
    });
  }
  void lose(int peer) override {
    lost_.insert(peer);
    for (PieceWaiter& waiter : senders_) waiter.lose(peer);
    for (PieceWaiter& waiter : receivers_) waiter.lose(peer);
  }
  void close(bool) override {
    for (PieceWaiter& waiter : senders_) waiter.close();
    for (PieceWaiter& waiter : receivers_) waiter.close();
    groups_.clear();
  }

 private:
  c10d::ProcessGroup& group(int lane) { return *groups_[static_cast<size_t>(lane)]; }

  static at::Tensor tensor_of(std::byte* data, size_t bytes) {
    return at::from_blob(data, {static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte));
  }
  /// Tags are an int of at least 0. Far fewer pieces than that are under way.
  static int slot_of(uint64_t number) { return static_cast<int>(number & 0x7fffffff); }

  template <class Begin>
  void begin(int peer, PieceWaiter& waiter, std::shared_ptr<const void> keep, Done done,
             Begin begin_work) {
    std::string error = "the rank is lost";
    WorkPtr work;
    if (!lost_.contains(peer)) {
      try {
        work = begin_work();
      } catch (const c10::Error& failure) {
        error = failure.what_without_backtrace();
      } catch (const std::exception& failure) {
        error = failure.what();
      }
    }
    if (!work) {
      done(error);
      return;
    }
    waiter.add({peer, std::move(keep), std::move(done), std::move(work)});
  }

  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups_;
  std::set<int> lost_;  ///< of the mesh's thread
  std::array<PieceWaiter, net::kCarrierLanes> senders_;
  std::array<PieceWaiter, net::kCarrierLanes> receivers_;
};

}  // namespace

std::unique_ptr<net::Carrier> make_c10d_carrier(
    std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups) {
  return std::make_unique<C10dCarrier>(std::move(groups));
}

}  // namespace penstock::runtime
