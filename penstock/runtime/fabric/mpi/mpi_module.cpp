// The carrier of penstock-mpi.so.
//
// One thread calls MPI, and nobody else does: it starts it, posts what the mesh asks for, tests
// what is under way, and ends it. MPI moves nothing while nobody calls it, and says of nothing that
// it is done. So the thread asks again and again while pieces are under way, with pauses when
// nothing comes, and sleeps when there are none.
#include "penstock/runtime/fabric/mpi/mpi_module.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/runtime/fabric/mpi/mpi_requests.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// A piece that is about to come is there after some questions; then its time costs less than
/// asking.
constexpr int kEagerQuestions = 200;
/// After the last piece: what MPI itself still has to answer, it can send only when it is called.
constexpr int kLastQuestions = 20;
constexpr std::chrono::milliseconds kLastPause{1};
constexpr std::chrono::hours kIdle{24};

class MpiCarrier : public net::Carrier {
 public:
  MpiCarrier(int rank, int ranks) {
    thread_ = std::thread([this, rank, ranks] { run(rank, ranks); });
  }
  ~MpiCarrier() override { close(/*orderly=*/false); }
  MpiCarrier(const MpiCarrier&) = delete;
  MpiCarrier& operator=(const MpiCarrier&) = delete;

  /// Blocks until MPI has started. Empty, or why it has not.
  std::string started() {
    MutexLock lock(mutex_);
    while (!is_started_) {
      changed_.wait_until(mutex_, Clock::now() + kIdle,
                          [this]() NO_THREAD_SAFETY_ANALYSIS { return is_started_; });
    }
    return error_;
  }

  void send(int peer, int lane, net::Carried<net::Bytes> piece, Done done) override {
    // Only read.
    auto* const data = const_cast<std::byte*>(piece.bytes.data());
    add({true, peer, lane, data, static_cast<int>(piece.bytes.size()), std::move(piece.keep),
         std::move(done)});
  }
  void receive(int peer, int lane, net::Carried<net::Memory> piece, Done done) override {
    add({false, peer, lane, piece.bytes.data(), static_cast<int>(piece.bytes.size()),
         std::move(piece.keep), std::move(done)});
  }
  void lose(int peer) override {
    MutexLock lock(mutex_);
    lost_.push_back(peer);
    changed_.notify_all();
  }
  void close(bool orderly) override {
    {
      MutexLock lock(mutex_);
      is_closed_ = true;
      is_orderly_ = orderly;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void add(Piece piece) {
    MutexLock lock(mutex_);
    new_.push_back(std::move(piece));
    changed_.notify_all();
  }

  void run(int rank, int ranks) {
    Requests requests;
    const std::string error = requests.start(rank, ranks);
    {
      MutexLock lock(mutex_);
      is_started_ = true;
      error_ = error;
      changed_.notify_all();
    }
    int questions = kEagerQuestions + kLastQuestions;  // since something ended
    while (take(requests, questions >= kEagerQuestions + kLastQuestions
                              ? std::chrono::nanoseconds(kIdle)
                              : std::chrono::nanoseconds(kLastPause))) {
      if (requests.test()) {
        questions = 0;
      } else if (requests.empty()) {
        questions = std::max(questions, kEagerQuestions);
        requests.answer();
      } else if (questions < kEagerQuestions) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
      // Never so many that it sleeps while pieces are under way.
      const int most = kEagerQuestions + (requests.empty() ? kLastQuestions : 0);
      questions = std::min(questions + 1, most);
    }
    MutexLock lock(mutex_);
    requests.end(is_orderly_ && error.empty());
  }

  /// Hands over what is new; when nothing is under way it waits so long for something. False when
  /// the carrier is closed.
  bool take(Requests& requests, std::chrono::nanoseconds pause) {
    std::deque<Piece> pieces;
    std::vector<int> lost;
    {
      MutexLock lock(mutex_);
      const auto is_something = [this]() NO_THREAD_SAFETY_ANALYSIS {
        return is_closed_ || !new_.empty() || !lost_.empty();
      };
      if (requests.empty()) changed_.wait_until(mutex_, Clock::now() + pause, is_something);
      pieces.swap(new_);
      lost.swap(lost_);
      if (is_closed_ && pieces.empty()) return false;
    }
    for (const int peer : lost) requests.lose(peer);
    for (Piece& piece : pieces) requests.post(std::move(piece));
    return true;
  }

  Mutex mutex_;
  CondVar changed_;
  bool is_started_ GUARDED_BY(mutex_) = false;
  std::string error_ GUARDED_BY(mutex_);
  bool is_closed_ GUARDED_BY(mutex_) = false;
  bool is_orderly_ GUARDED_BY(mutex_) = false;
  std::deque<Piece> new_ GUARDED_BY(mutex_);
  std::vector<int> lost_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

}  // namespace penstock::runtime

extern "C" __attribute__((visibility("default"))) std::unique_ptr<penstock::net::Carrier>
penstock_make_mpi_carrier(int rank, int ranks, std::string& error) {
  auto carrier = std::make_unique<penstock::runtime::MpiCarrier>(rank, ranks);
  error = carrier->started();
  if (!error.empty()) return nullptr;
  return carrier;
}
