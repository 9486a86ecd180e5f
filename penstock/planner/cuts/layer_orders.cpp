#include "penstock/planner/cuts/layer_orders.h"

#include <algorithm>
#include <queue>

#include "penstock/planner/cuts/cut_cursor.h"

namespace penstock::planner {

namespace {

// More ready layers than this are not compared; the ones that became ready last come first.
constexpr size_t kCompared = 64;

// Takes one ready layer after another, the one with the least cost(layer), which is told of each
// one taken by taken(layer). Ties: the one that became ready last, so that branches are followed.
template <typename Cost, typename Taken>
std::vector<int> greedy_order(const graph::ModelGraph& graph, const Cost& cost,
                              const Taken& taken) {
  const auto n = static_cast<size_t>(graph.num_layers());
  std::vector<int> missing(n);
  std::vector<int> ready;
  for (size_t l = n; l-- > 0;) {
    missing[l] = static_cast<int>(graph.predecessors(LayerId{static_cast<int32_t>(l)}).size());
    if (missing[l] == 0) ready.push_back(static_cast<int>(l));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    size_t best = ready.size() - 1;
    auto best_cost = cost(ready[best]);
    for (size_t k = best; k-- > ready.size() - std::min(ready.size(), kCompared);) {
      const auto other = cost(ready[k]);
      if (other < best_cost) {
        best = k;
        best_cost = other;
      }
    }
    const int layer = ready[best];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(best));
    order.push_back(layer);
    taken(layer);
    const auto& successors = graph.successors(LayerId{layer});
    for (auto it = successors.rbegin(); it != successors.rend(); ++it) {
      if (--missing[it->index()] == 0) ready.push_back(it->value);
    }
  }
  return order;
}

}  // namespace

std::vector<int> narrow_order(const graph::ModelGraph& graph) {
  std::vector<bool> touched(static_cast<size_t>(graph.num_layers()), false);
  // How many more layers would be undecided with a decided predecessor.
  const auto widening = [&](int layer) {
    int change = touched[static_cast<size_t>(layer)] ? -1 : 0;
    for (const LayerId successor : graph.successors(LayerId{layer}))
      change += touched[successor.index()] ? 0 : 1;
    return change;
  };
  return greedy_order(graph, widening, [&](int layer) {
    for (const LayerId successor : graph.successors(LayerId{layer}))
      touched[successor.index()] = true;
  });
}

std::vector<int> balanced_order(const graph::ModelGraph& graph,
                                const std::vector<PlannedLayer>& layers) {
  const auto n = static_cast<size_t>(graph.num_layers());
  std::vector<int64_t> way_to_go(n, 0);
  std::vector<int> missing(n);
  std::priority_queue<std::pair<int64_t, int>> ready;
  for (size_t l = n; l-- > 0;) {
    const LayerId id{static_cast<int32_t>(l)};
    for (const LayerId successor : graph.successors(id))
      way_to_go[l] = std::max(way_to_go[l], way_to_go[successor.index()]);
    way_to_go[l] += layers[l].compute_ns;
    missing[l] = static_cast<int>(graph.predecessors(id).size());
    if (missing[l] == 0) ready.emplace(way_to_go[l], -static_cast<int>(l));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(-ready.top().second);
    ready.pop();
    for (const LayerId successor : graph.successors(LayerId{order.back()})) {
      if (--missing[successor.index()] == 0)
        ready.emplace(way_to_go[successor.index()], -successor.value);
    }
  }
  return order;
}

std::vector<int> least_cut_order(const graph::ModelGraph& graph,
                                 const std::vector<PlannedLayer>& layers) {
  CutCursor cursor(graph, layers);
  const auto bytes_after = [&](int layer) {
    cursor.add(layer);
    const int64_t bytes = cursor.cut_bytes();
    cursor.remove(layer);
    return bytes;
  };
  return greedy_order(graph, bytes_after, [&](int layer) { cursor.add(layer); });
}

}  // namespace penstock::planner
