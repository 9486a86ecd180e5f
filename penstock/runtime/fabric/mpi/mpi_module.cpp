// The carrier of penstock-mpi.so.
//
// One thread calls MPI, and nobody else does: it starts it, posts what the mesh asks for, tests
// what is under way, and ends it. MPI moves nothing while nobody calls it, and says of nothing that
// it is done. So the thread asks again and again while pieces are under way, with pauses when
// nothing comes, and sleeps when there are none.
#include "penstock/runtime/fabric/mpi/mpi_module.h"

#include <mpi.h>

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/util/mutex.h"

namespace penstock::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// A piece that is about to come is there after some questions; then its time costs less than
/// asking.
constexpr int kEagerQuestions = 200;
constexpr std::chrono::microseconds kPause{50};
/// After the last piece: what MPI itself still has to answer, it can send only when it is called.
constexpr int kLastQuestions = 20;
constexpr std::chrono::milliseconds kLastPause{1};
/// For pieces that are under way when all ranks end.
constexpr std::chrono::seconds kGoodbye{2};
constexpr std::chrono::hours kIdle{24};

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<size_t>(length)};
}

struct Piece {
  bool sends = false;
  int peer = 0;
  int lane = 0;
  std::byte* data = nullptr;
  int bytes = 0;
  std::shared_ptr<const void> keep;
  net::Carrier::Done done;
};

/// What only the thread of MPI touches.
class Requests {
 public:
  /// Empty, or why MPI cannot be used.
  std::string start(int rank, int ranks);
  void post(Piece piece);
  /// Ends the pieces that are complete; false: none was.
  bool test();
  void lose(int peer);
  /// So that MPI answers what has come to it.
  void answer();
  bool empty() const { return pieces_.empty(); }
  void end(bool orderly);

 private:
  void abandon(Piece piece, const std::string& why);

  std::array<MPI_Comm, net::kCarrierLanes> lanes_ = {};
  std::vector<Piece> pieces_;
  std::vector<MPI_Request> requests_;  ///< as many
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::set<int> lost_;
  /// Whose requests never ended: MPI may still touch the memory.
  std::vector<Piece> abandoned_;
};

std::string Requests::start(int rank, int ranks) {
  int given = 0;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
      code != MPI_SUCCESS)
    return "MPI does not start: " + text_of(code);
  int own = -1;
  int all = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  if (own != rank || all != ranks) {
    return "the launcher of MPI says rank " + std::to_string(own) + " of " + std::to_string(all) +
           ", the job's variables say rank " + std::to_string(rank) + " of " +
           std::to_string(ranks) + ": start one job with one launcher";
  }
  for (MPI_Comm& lane : lanes_) {
    if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, &lane); code != MPI_SUCCESS)
      return "MPI does not start: " + text_of(code);
    MPI_Comm_set_errhandler(lane, MPI_ERRORS_RETURN);
  }
  return {};
}

void Requests::abandon(Piece piece, const std::string& why) {
  const net::Carrier::Done done = std::exchange(piece.done, nullptr);
  abandoned_.push_back(std::move(piece));
  done(why);
}

void Requests::post(Piece piece) {
  if (lost_.contains(piece.peer)) {
    piece.done("the rank is lost");
    return;
  }
  const MPI_Comm comm = lanes_[static_cast<size_t>(piece.lane)];
  MPI_Request request = MPI_REQUEST_NULL;
  // Synchronous: a send that is done has reached its receive, so this rank may end then.
  const int code =
      piece.sends ? MPI_Issend(piece.data, piece.bytes, MPI_BYTE, piece.peer, 0, comm, &request)
                  : MPI_Irecv(piece.data, piece.bytes, MPI_BYTE, piece.peer, 0, comm, &request);
  if (code != MPI_SUCCESS) {
    abandon(std::move(piece), "MPI: " + text_of(code));
    return;
  }
  pieces_.push_back(std::move(piece));
  requests_.push_back(request);
}

bool Requests::test() {
  if (pieces_.empty()) return false;
  indices_.resize(pieces_.size());
  statuses_.resize(pieces_.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                indices_.data(), statuses_.data());
  if (count == MPI_UNDEFINED || count <= 0) return false;
  std::vector<Piece> ended;
  std::vector<std::string> errors;
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(indices_[static_cast<size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    std::string error;
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS)
      error = "MPI: " + text_of(status.MPI_ERROR);
    ended.push_back(std::move(pieces_[index]));
    errors.push_back(std::move(error));
  }
  // The order of the others does not matter to MPI_Testsome.
  std::vector<Piece> pieces;
  std::vector<MPI_Request> requests;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    pieces.push_back(std::move(pieces_[i]));
    requests.push_back(requests_[i]);
  }
  pieces_ = std::move(pieces);
  requests_ = std::move(requests);
  for (size_t i = 0; i < ended.size(); ++i) {
    if (errors[i].empty())
      ended[i].done("");
    else
      abandon(std::move(ended[i]), errors[i]);
  }
  return true;
}

void Requests::lose(int peer) {
  if (!lost_.insert(peer).second) return;
  // MPI cannot take back a send, and a receive only as long as nothing has come for it.
  for (size_t i = 0; i < pieces_.size();) {
    if (pieces_[i].peer != peer) {
      ++i;
      continue;
    }
    abandon(std::move(pieces_[i]), "the rank is lost");
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(i));
    requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Requests::answer() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, lanes_[0], &found, MPI_STATUS_IGNORE);
}

void Requests::end(bool orderly) {
  const Clock::time_point deadline = Clock::now() + kGoodbye;
  while (orderly && !pieces_.empty() && Clock::now() < deadline) {
    if (!test()) std::this_thread::sleep_for(kPause);
  }
  if (orderly && pieces_.empty() && abandoned_.empty()) {
    for (MPI_Comm& lane : lanes_) MPI_Comm_free(&lane);
    MPI_Finalize();
    return;
  }
  // MPI_Finalize would wait for the lost rank, or for those that skip it for the same reason, for
  // ever; the launcher ends a job whose ranks fail. Without another call MPI does nothing more, but
  // network cards may: the memory stays until the process ends.
  for (Piece& piece : pieces_) piece.done = nullptr;
  auto forever = std::make_unique<std::pair<std::vector<Piece>, std::vector<Piece>>>(
      std::move(pieces_), std::move(abandoned_));
  static_cast<void>(forever.release());
}

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
