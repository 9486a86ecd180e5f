// A graph with some of its edges left out, so that an order of its layers has a narrow frontier.
// Its downsets are those of the whole graph and more, and their cuts cost no more. Internal to the
// planner.
#pragma once

#include <vector>

#include "penstock/graph/model_graph.h"

namespace penstock::planner {

/// Leaves out edges to layers with several predecessors from values with several readers, the
/// longest in the order first, until no more than `most_open` of them are open at any place of it.
/// Layers keep their ids and at least one input. O(edges * log(edges) + edges * layers).
graph::ModelGraph with_fewer_edges(const graph::ModelGraph& graph, const std::vector<int>& order,
                                   int most_open);

}  // namespace penstock::planner
