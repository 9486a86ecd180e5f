// The oracle of the partitioner's tests: tries every pipeline. For graphs of up to about ten
// layers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/planner/cost/cost_model.h"
#include "penstock/planner/cuts/cut_states.h"
#include "penstock/planner/partition.h"

namespace penstock::planner {

struct BruteForceResult {
  double bottleneck_ns = 0;
  int workers = 0;
  int stages = 0;
  int64_t cut_bytes = 0;                          ///< of all cuts together
  std::vector<std::vector<LayerId>> layers = {};  ///< per stage
  std::vector<cluster::WorkerRange> places = {};
  std::vector<bool> recompute = {};
};

/// Enumerates every ordered partition of the layers into stages that no edge leads back across,
/// every placement of the stages on runs of consecutive workers in order, with gaps, and every
/// choice of recomputation; returns the one with the least (bottleneck, workers, stages, bytes over
/// all cuts), or nothing when none fits the memory. Shares nothing with the partitioner but the
/// cost and memory models. Options as in PartitionProblem, whose `states` are not used. Throws
/// ConfigError above 16 layers. Exponential.
std::optional<BruteForceResult> brute_force(const graph::ModelGraph& graph,
                                            const std::vector<PlannedLayer>& layers,
                                            const PartitionProblem& problem);

}  // namespace penstock::planner
