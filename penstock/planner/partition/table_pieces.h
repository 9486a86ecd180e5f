// What runs of workers offer to a stage on unequal devices: its level, speed and memory, by where
// it ends and how many replicas it has. Internal to table_search.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/partition/partition_search.h"
#include "penstock/planner/partition/placement_units.h"

namespace penstock::planner {

/// Stages of up to `most` replicas, and more than the piece before allows, span this level and are
/// as slow and as small as this.
struct Piece {
  int most = 0;
  int kind = 0;
  double speed = 1;
  int64_t memory = 0;
};

/// For every last worker + 1 of a stage, the pieces by their number of replicas. O(workers^2) where
/// there are groups of devices, otherwise O(workers * levels).
/// `held` counts them. Throws SearchEnded.
std::vector<std::vector<Piece>> list_pieces(const PartitionProblem& problem, const Units& units,
                                            HeldBytes& held);

/// Whether memory is limited somewhere.
bool any_limited(const std::vector<std::vector<Piece>>& pieces);

}  // namespace penstock::planner
