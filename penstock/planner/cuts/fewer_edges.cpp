#include "penstock/planner/cuts/fewer_edges.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "penstock/planner/cuts/cut_cursor.h"

namespace penstock::planner {

namespace {

struct Edge {
  int reader = 0;
  graph::ValueRef value;
  int from = 0;  ///< positions in the order
  int to = 0;
};

std::vector<Edge> open_edges(const graph::ModelGraph& graph, const std::vector<int>& order) {
  std::vector<int> position(order.size());
  for (size_t k = 0; k < order.size(); ++k)
    position[static_cast<size_t>(order[k])] = static_cast<int>(k);
  std::map<graph::ValueRef, int> readers;
  for (const graph::LayerNode& layer : graph.layers()) {
    for (const graph::ValueRef& input : distinct_inputs(layer)) ++readers[input];
  }
  std::vector<Edge> edges;
  for (int l = 0; l < graph.num_layers(); ++l) {
    std::vector<graph::ValueRef> inputs = distinct_inputs(graph.layer(LayerId{l}));
    if (inputs.size() < 2) continue;
    // The nearest one stays.
    const auto nearest =
        std::max_element(inputs.begin(), inputs.end(), [&](const auto& a, const auto& b) {
          return position[a.layer.index()] < position[b.layer.index()];
        });
    inputs.erase(nearest);
    for (const graph::ValueRef& input : inputs) {
      if (readers[input] > 1)
        edges.push_back(
            {l, input, position[input.layer.index()], position[static_cast<size_t>(l)]});
    }
  }
  return edges;
}

}  // namespace

graph::ModelGraph with_fewer_edges(const graph::ModelGraph& graph, const std::vector<int>& order,
                                   int most_open) {
  std::vector<Edge> edges = open_edges(graph, order);
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.to - a.from < b.to - b.from; });
  // Short ones are kept first.
  std::vector<int> open(order.size(), 0);
  std::set<std::pair<int, graph::ValueRef>> left_out;
  for (const Edge& edge : edges) {
    const auto begin = open.begin() + edge.from;
    const auto end = open.begin() + edge.to;
    if (std::any_of(begin, end, [&](int count) { return count >= most_open; })) {
      left_out.insert({edge.reader, edge.value});
    } else {
      std::for_each(begin, end, [](int& count) { ++count; });
    }
  }
  std::vector<graph::LayerNode> layers = graph.layers();
  for (size_t l = 0; l < layers.size(); ++l) {
    std::erase_if(layers[l].inputs, [&](const graph::ValueRef& input) {
      return left_out.contains({static_cast<int>(l), input});
    });
  }
  return graph::ModelGraph::build(graph.num_inputs(), std::move(layers), graph.outputs());
}

}  // namespace penstock::planner
