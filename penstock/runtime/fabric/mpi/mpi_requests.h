// The pieces that MPI has. Only the thread that started MPI touches them. Internal to
// penstock-mpi.so.
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "penstock/net/carrier.h"

namespace penstock::runtime {

/// Between two questions whether something has ended, when nothing comes.
inline constexpr std::chrono::microseconds kPause{50};

/// One side of a piece.
struct Piece {
  bool sends = false;
  int peer = 0;
  int lane = 0;
  std::byte* data = nullptr;
  int bytes = 0;
  std::shared_ptr<const void> keep;
  net::Carrier::Done done;
};

/// Calls MPI and nothing else.
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

}  // namespace penstock::runtime
