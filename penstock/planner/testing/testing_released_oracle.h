// PipeDream's released optimiser for one network level, written down step by step for the tests:
// its antichains, its cost, all machines used. Quirks included: which cuts it looks at follows from
// its search over augmented antichains, not from what is a valid cut.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "penstock/planner/cuts/cut_states.h"

namespace penstock::planner::testing_graphs {

class ReleasedOptimizer {
 public:
  ReleasedOptimizer(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers)
      : graph_(graph), layers_(layers) {
    const int n = graph.num_layers();
    before_.resize(static_cast<size_t>(n));
    after_.resize(static_cast<size_t>(n));
    for (int l = 0; l < n; ++l) {
      for (const LayerId p : graph.predecessors(LayerId{l})) {
        before_[static_cast<size_t>(l)].insert(p.value);
        before_[static_cast<size_t>(l)].insert(before_[p.index()].begin(),
                                               before_[p.index()].end());
      }
      for (const int p : before_[static_cast<size_t>(l)]) after_[static_cast<size_t>(p)].insert(l);
    }
    list_states();
  }

  /// Non-empty states: sets of layers that it knows as the part before a cut.
  int num_states() const { return static_cast<int>(states_.size()); }

  /// Its bottleneck on `machines` machines, all of which it uses, or nothing where its search never
  /// reaches the whole model.
  std::optional<double> bottleneck_ns(int machines, double bandwidth_bytes_per_s) const {
    const auto states = static_cast<int>(states_.size());
    std::vector<std::vector<double>> best(static_cast<size_t>(states),
                                          std::vector<double>(static_cast<size_t>(machines) + 1));
    for (int j = 0; j < states; ++j) {
      const State& to = states_[static_cast<size_t>(j)];
      for (int m = 1; m <= machines; ++m) {
        double& value = best[static_cast<size_t>(j)][static_cast<size_t>(m)];
        value = stage_ns(to.compute_ns, to.weight_bytes, m, bandwidth_bytes_per_s);
        for (const int k : to.predecessors) {
          const State& from = states_[static_cast<size_t>(k)];
          for (int replicas = 1; replicas < m; ++replicas) {
            const double last =
                stage_ns(to.compute_ns - from.compute_ns, to.weight_bytes - from.weight_bytes,
                         replicas, bandwidth_bytes_per_s);
            value = std::min(
                value,
                std::max(last, best[static_cast<size_t>(k)][static_cast<size_t>(m - replicas)]));
          }
        }
      }
    }
    if (states == 0 || static_cast<int>(states_.back().layers.size()) != graph_.num_layers())
      return std::nullopt;
    return best.back().back();
  }

 private:
  using Antichain = std::set<int>;

  struct State {
    std::set<int> layers;
    double compute_ns = 0;
    double weight_bytes = 0;
    std::set<int> predecessors;
  };

  static double stage_ns(double compute_ns, double weight_bytes, int m, double bandwidth) {
    return (compute_ns + 4.0 * (m - 1) * weight_bytes * 1e9 / (m * bandwidth)) / m;
  }

  // Predecessors of a member with an edge to something that is neither before that member nor the
  // member itself join it.
  Antichain augmented(const Antichain& antichain) const {
    Antichain result = antichain;
    for (const int member : antichain) {
      const std::set<int>& before = before_[static_cast<size_t>(member)];
      for (const int p : before) {
        for (const LayerId out : graph_.successors(LayerId{p})) {
          if (out.value != member && !before.contains(out.value)) result.insert(p);
        }
      }
    }
    return result;
  }

  std::vector<Antichain> next(const Antichain& antichain) const {
    std::vector<Antichain> result;
    const Antichain wide = augmented(antichain);
    for (const int member : wide) {
      for (const LayerId out : graph_.successors(LayerId{member})) {
        const std::set<int>& behind = after_[out.index()];
        if (antichain.contains(out.value) ||
            std::any_of(wide.begin(), wide.end(), [&](int w) { return behind.contains(w); }))
          continue;
        Antichain replaced = wide;
        replaced.erase(member);
        replaced.insert(out.value);
        Antichain kept;
        for (const int a : replaced) {
          const std::set<int>& later = after_[static_cast<size_t>(a)];
          if (std::none_of(replaced.begin(), replaced.end(),
                           [&](int b) { return later.contains(b); }))
            kept.insert(a);
        }
        result.push_back(kept);
      }
    }
    return result;
  }

  void list_states() {
    int source = 0;
    while (!graph_.predecessors(LayerId{source}).empty()) ++source;
    std::map<Antichain, std::set<Antichain>> reached_from{{{source}, {}}};
    std::deque<Antichain> queue{{source}};
    while (!queue.empty()) {
      const Antichain antichain = queue.front();
      queue.pop_front();
      for (const Antichain& following : next(antichain)) {
        if (!reached_from.contains(following)) queue.push_back(following);
        reached_from[following].insert(antichain);
      }
    }
    std::vector<std::pair<size_t, Antichain>> order;
    for (const auto& [antichain, from] : reached_from)
      order.emplace_back(layers_of(antichain).size(), antichain);
    std::sort(order.begin(), order.end());
    std::map<Antichain, int> index;
    for (const auto& [size, antichain] : order) {
      State state{
          .layers = layers_of(antichain), .compute_ns = 0, .weight_bytes = 0, .predecessors = {}};
      for (const int l : state.layers) {
        state.compute_ns += static_cast<double>(layers_[static_cast<size_t>(l)].compute_ns);
        state.weight_bytes += static_cast<double>(layers_[static_cast<size_t>(l)].weight_bytes);
      }
      for (const Antichain& from : reached_from[antichain]) {
        if (!index.contains(from)) continue;
        state.predecessors.insert(index[from]);
        const std::set<int>& earlier = states_[static_cast<size_t>(index[from])].predecessors;
        state.predecessors.insert(earlier.begin(), earlier.end());
      }
      index[antichain] = static_cast<int>(states_.size());
      states_.push_back(std::move(state));
    }
  }

  std::set<int> layers_of(const Antichain& antichain) const {
    std::set<int> layers = antichain;
    for (const int member : antichain)
      layers.insert(before_[static_cast<size_t>(member)].begin(),
                    before_[static_cast<size_t>(member)].end());
    return layers;
  }

  const graph::ModelGraph& graph_;
  const std::vector<PlannedLayer>& layers_;
  std::vector<std::set<int>> before_;  ///< all ancestors, per layer
  std::vector<std::set<int>> after_;
  std::vector<State> states_;  ///< by size
};

}  // namespace penstock::planner::testing_graphs
