#include "penstock/runtime/fabric/mpi/mpi_requests.h"

#include <cstddef>
#include <thread>
#include <utility>

namespace penstock::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// For pieces that are under way when all ranks end.
constexpr std::chrono::seconds kGoodbye{2};

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<size_t>(length)};
}

}  // namespace

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

}  // namespace penstock::runtime
