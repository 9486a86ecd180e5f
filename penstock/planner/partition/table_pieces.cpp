#include "penstock/planner/partition/table_pieces.h"

#include <algorithm>

namespace penstock::planner {

namespace {

bool same(const Piece& a, const Piece& b) {
  return a.kind == b.kind && a.speed == b.speed && a.memory == b.memory;
}

// The pieces of the stages that end before worker `end`.
std::vector<Piece> pieces_before(const PartitionProblem& problem, const Units& units, int end) {
  const StageChooser chooser(problem);
  const bool alike = problem.cluster.groups.empty();
  const cluster::Device& last = problem.cluster.device_of(end - 1);
  Piece piece{.speed = last.speed, .memory = chooser.memory_limit(last)};
  std::vector<Piece> pieces;
  for (int count = 1; count <= end; ++count) {
    while (piece.kind < units.top() && count > units.upto(end, piece.kind)) ++piece.kind;
    if (alike) {  // nothing changes but at the borders of units
      count = piece.kind == units.top() ? end : std::min(end, units.upto(end, piece.kind));
    } else {
      const cluster::Device& device = problem.cluster.device_of(end - count);
      piece.speed = std::min(piece.speed, device.speed);
      const int64_t limit = chooser.memory_limit(device);
      if (limit > 0 && (piece.memory <= 0 || limit < piece.memory)) piece.memory = limit;
    }
    if (pieces.empty() || !same(pieces.back(), piece)) pieces.push_back(piece);
    pieces.back().most = count;
  }
  return pieces;
}

}  // namespace

std::vector<std::vector<Piece>> list_pieces(const PartitionProblem& problem, const Units& units,
                                            HeldBytes& held) {
  std::vector<std::vector<Piece>> pieces(1);
  held.set(static_cast<size_t>(problem.workers) * sizeof(pieces.front()));
  pieces.reserve(static_cast<size_t>(problem.workers) + 1);
  for (int end = 1; end <= problem.workers; ++end) {
    problem.time.check();
    pieces.push_back(pieces_before(problem, units, end));
    held.add(pieces.back().capacity() * sizeof(Piece));
  }
  return pieces;
}

bool any_limited(const std::vector<std::vector<Piece>>& pieces) {
  return std::any_of(pieces.begin(), pieces.end(), [](const std::vector<Piece>& of_end) {
    return !of_end.empty() && of_end.back().memory > 0;
  });
}

}  // namespace penstock::planner
