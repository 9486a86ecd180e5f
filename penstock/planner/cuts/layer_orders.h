// Topological orders of a layer graph, each good for something else. Every prefix of one is a
// downset, so an order offers one cut per layer.
#pragma once

#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/planner/cuts/cut_states.h"

namespace penstock::planner {

/// Keeps few layers half surrounded: follows a branch to its end before it begins the next. Greedy;
/// O(edges), times at most 64 ready layers.
std::vector<int> narrow_order(const graph::ModelGraph& graph);

/// Advances all branches together: the layer with the longest way to go first.
std::vector<int> balanced_order(const graph::ModelGraph& graph,
                                const std::vector<PlannedLayer>& layers);

/// After each layer as few bytes across the cut as the next step allows. Greedy, as narrow_order.
std::vector<int> least_cut_order(const graph::ModelGraph& graph,
                                 const std::vector<PlannedLayer>& layers);

}  // namespace penstock::planner
