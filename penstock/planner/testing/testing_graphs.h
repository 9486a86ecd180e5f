// Small random models for the planner's tests, the same for the same seed everywhere.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "penstock/planner/cuts/cut_states.h"
#include "penstock/profile/profile.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::planner::testing_graphs {

inline int64_t between(Rng& rng, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(rng.below(static_cast<uint64_t>(most - least + 1)));
}

/// A DAG of `num_layers` layers; small numbers with many zeros and ties, so that rounding and
/// tie-breaks are exercised.
inline profile::Profile random_profile(Rng& rng, int num_layers, double extra_edges) {
  std::vector<graph::LayerNode> nodes;
  profile::Profile profile;
  for (int l = 0; l < num_layers; ++l) {
    graph::LayerNode node{.name = fmt::format("l{}", l),
                          .kind = "test",
                          .inputs = {},
                          .num_outputs = static_cast<int>(between(rng, 1, 2))};
    if (l == 0 || rng.uniform() < 0.15) node.inputs.push_back(graph::ValueRef::model_input(0));
    for (int p = 0; p < l; ++p) {
      const double chance = p == l - 1 ? 0.7 : extra_edges;
      if (rng.uniform() >= chance) continue;
      const int outputs = nodes[static_cast<size_t>(p)].num_outputs;
      node.inputs.push_back({LayerId{p}, static_cast<int>(between(rng, 0, outputs - 1))});
      if (outputs == 2 && rng.uniform() < 0.3) node.inputs.push_back({LayerId{p}, 0});
    }
    if (node.inputs.empty()) node.inputs.push_back(graph::ValueRef::model_input(0));
    profile::LayerCost cost;
    cost.forward_ns = rng.uniform() < 0.15 ? 0 : between(rng, 1, 40);
    cost.backward_ns = cost.forward_ns * 2;
    cost.step_ns = rng.uniform() < 0.5 ? 0 : between(rng, 1, 10);
    cost.weight_bytes = rng.uniform() < 0.3 ? 0 : between(rng, 1, 60);
    cost.stash_bytes = between(rng, 0, 30);
    // Without a draw of its own: the same models as ever but for this.
    cost.accumulate_ns = cost.weight_bytes % 3 == 1 ? cost.weight_bytes / 4 : 0;
    for (int o = 0; o < node.num_outputs; ++o) cost.output_bytes.push_back(between(rng, 0, 40));
    profile.costs.push_back(cost);
    nodes.push_back(std::move(node));
  }
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{num_layers - 1}, 0}});
  profile.model = "random";
  profile.source = "test";
  profile.batch_size = 4;
  return profile;
}

inline std::vector<PlannedLayer> planned_layers(const profile::Profile& profile) {
  std::vector<PlannedLayer> layers;
  for (const profile::LayerCost& cost : profile.costs) {
    layers.push_back({.forward_ns = cost.forward_ns,
                      .compute_ns = cost.forward_ns + cost.backward_ns,
                      .step_ns = cost.step_ns,
                      .weight_bytes = cost.weight_bytes,
                      .stash_bytes = cost.stash_bytes,
                      .output_bytes = cost.output_bytes,
                      .accumulate_ns = cost.accumulate_ns});
  }
  return layers;
}

/// A flat cluster of `workers` joined at `bandwidth` bytes per second.
inline cluster::Cluster flat_cluster(int workers, int64_t bandwidth, int64_t latency_ns = 0,
                                     bool by_reference = false) {
  return {.levels = {{.name = "flat",
                      .count = workers,
                      .bandwidth_bytes_per_s = bandwidth,
                      .latency_ns = latency_ns,
                      .by_reference = by_reference}}};
}

/// Half of the time sums take processor time at some levels, about as much as the time on the wire
/// at most.
inline void add_processor_times(Rng& rng, cluster::Cluster& cluster) {
  if (rng.below(2) == 0) return;
  for (cluster::Level& level : cluster.levels) {
    const int64_t wire_ns = 1'000'000'000'000'000'000 / level.bandwidth_bytes_per_s;
    level.processor_ns_per_gb = between(rng, 0, 2) * between(rng, 0, wire_ns) / 2;
  }
}

/// One to three levels of one to four units, at most `most_workers` workers, faster inside than
/// outside as a rule.
inline cluster::Cluster random_cluster(Rng& rng, int most_workers) {
  const int64_t bandwidths[] = {50'000'000, 500'000'000, 1'000'000'000, 10'000'000'000};
  cluster::Cluster cluster;
  int workers = 1;
  const int64_t num_levels = between(rng, 1, 3);
  for (int64_t level = 0; level < num_levels; ++level) {
    const auto count = static_cast<int>(between(rng, 1, std::min(4, most_workers / workers)));
    workers *= count;
    cluster.levels.push_back({.name = fmt::format("level{}", level),
                              .count = count,
                              .bandwidth_bytes_per_s = bandwidths[rng.below(4)],
                              .latency_ns = between(rng, 0, 3),
                              .by_reference = rng.below(4) == 0});
  }
  add_processor_times(rng, cluster);
  return cluster;
}

/// Makes a unit of some level a machine, half of the time with a random inside.
inline void add_machines(Rng& rng, cluster::Cluster& cluster) {
  const auto level = rng.below(cluster.levels.size() + 1);
  if (level > 0) cluster.levels[level - 1].machine = true;
  if (cluster.machine_level() == 0 || rng.below(2) == 0) return;
  int devices = 1;
  for (int l = 0; l < cluster.machine_level(); ++l)
    devices *= cluster.levels[static_cast<size_t>(l)].count;
  auto switches = static_cast<int>(between(rng, 1, devices));
  while (devices % switches != 0) --switches;
  const auto bandwidth = [&] { return between(rng, 1, 20) * 500'000'000; };
  cluster.machine = {.switches = switches,
                     .device_bytes_per_s = bandwidth(),
                     .switch_bytes_per_s = bandwidth(),
                     .cross_bytes_per_s = bandwidth(),
                     .nvlink_bytes_per_s = rng.below(2) == 0 ? 0 : 4 * bandwidth(),
                     .network_card = static_cast<int>(between(rng, -1, switches - 1))};
}

/// A chain of layers with the given forward times (backward twice that), weights and output sizes.
inline profile::Profile chain(const std::vector<int64_t>& forward_ns,
                              const std::vector<int64_t>& weight_bytes,
                              const std::vector<int64_t>& output_bytes) {
  std::vector<graph::LayerNode> nodes;
  profile::Profile profile;
  for (size_t l = 0; l < forward_ns.size(); ++l) {
    const graph::ValueRef input = l == 0 ? graph::ValueRef::model_input(0)
                                         : graph::ValueRef{LayerId{static_cast<int32_t>(l - 1)}, 0};
    nodes.push_back(
        {.name = fmt::format("l{}", l), .kind = "linear", .inputs = {input}, .num_outputs = 1});
    profile.costs.push_back({.forward_ns = forward_ns[l],
                             .backward_ns = 2 * forward_ns[l],
                             .output_bytes = {output_bytes[l]},
                             .weight_bytes = weight_bytes[l],
                             .stash_bytes = output_bytes[l]});
  }
  profile.graph = graph::ModelGraph::build(
      1, std::move(nodes), {{LayerId{static_cast<int32_t>(forward_ns.size()) - 1}, 0}});
  profile.model = "chain";
  profile.source = "test";
  profile.batch_size = 1;
  return profile;
}

/// VGG-16 in small: computation first, weights last. Times in us so that rounding does not matter.
inline profile::Profile vgg_like() {
  return chain({400'000, 400'000, 30'000}, {1000, 1000, 1'000'000}, {10'000, 10'000, 100});
}

/// Two servers of two, ten times slower between them than inside.
inline cluster::Cluster two_servers() {
  cluster::Cluster cluster = flat_cluster(2, 10'000'000'000);
  cluster.levels.push_back(
      {.name = "rack", .count = 2, .bandwidth_bytes_per_s = 1'000'000'000, .latency_ns = 10});
  return cluster;
}

}  // namespace penstock::planner::testing_graphs
