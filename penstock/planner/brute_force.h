// The oracle of the partitioner's tests: tries every pipeline. For graphs of up to about ten layers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/planner/cost_model.h"
#include "penstock/planner/cut_states.h"
#include "penstock/planner/memory_model.h"

namespace penstock::planner {

struct BruteForceResult {
  double bottleneck_ns = 0;
  int workers = 0;
  int stages = 0;
  std::vector<std::vector<LayerId>> layers;  ///< per stage
  std::vector<int> replicas;
};

/// Enumerates every ordered partition of the layers into stages that no edge leads back across, and every assignment of replicas; returns
/// the one with the least (bottleneck, workers, stages), or nothing when none fits the memory. Shares nothing with the partitioner but the
/// cost and memory models. `straight` and `at_least_two_stages` as in PartitionProblem. Throws ConfigError above 16 layers. Exponential.
std::optional<BruteForceResult> brute_force(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers, const CostModel& model,
                                            const MemoryModel& memory, int workers, bool straight, bool at_least_two_stages);

}  // namespace penstock::planner
