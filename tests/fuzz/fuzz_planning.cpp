// The planner under limits of time and memory: whatever the model, the cluster and the limits, it
// ends with a plan of all layers, with a reason, or with a ConfigError. The bytes are the choices;
// where they end, each is the first.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/planner/planner.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace {

using namespace penstock;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : at_(data), left_(size) {}

  /// From 0 to `most`, which is below 2^16.
  int64_t upto(int64_t most) {
    const int64_t value = next() * 256 + next();
    return value % (most + 1);
  }

 private:
  int64_t next() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }

  const uint8_t* at_;
  size_t left_;
};

profile::Profile profile_of(Bytes& bytes) {
  profile::Profile profile;
  std::vector<graph::LayerNode> nodes;
  const auto layers = static_cast<int>(1 + bytes.upto(47));
  for (int l = 0; l < layers; ++l) {
    graph::LayerNode node{.name = fmt::format("l{}", l), .kind = "test", .inputs = {}};
    const int64_t readers = bytes.upto(2);
    for (int64_t k = 0; k < readers && l > 0; ++k) {
      const graph::ValueRef input{LayerId{static_cast<int32_t>(bytes.upto(l - 1))}, 0};
      if (std::find(node.inputs.begin(), node.inputs.end(), input) == node.inputs.end())
        node.inputs.push_back(input);
    }
    if (node.inputs.empty()) node.inputs.push_back(graph::ValueRef::model_input(0));
    nodes.push_back(std::move(node));
    profile.costs.push_back({.forward_ns = bytes.upto(5'000),
                             .backward_ns = bytes.upto(5'000),
                             .output_bytes = {bytes.upto(10'000)},
                             .weight_bytes = bytes.upto(50'000),
                             .stash_bytes = bytes.upto(50'000)});
  }
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{layers - 1}, 0}});
  profile.model = "fuzz";
  profile.source = "fuzz";
  profile.batch_size = 1 + bytes.upto(63);
  return profile;
}

cluster::Cluster cluster_of(Bytes& bytes) {
  cluster::Cluster cluster;
  cluster.levels.clear();
  const int64_t levels = 1 + bytes.upto(2);
  for (int64_t k = 0; k < levels; ++k) {
    cluster.levels.push_back({.name = fmt::format("level{}", k),
                              .count = static_cast<int>(1 + bytes.upto(7)),
                              .bandwidth_bytes_per_s = 1'000'000 * (1 + bytes.upto(20'000)),
                              .latency_ns = bytes.upto(50'000)});
  }
  cluster.device.memory_bytes = bytes.upto(3) == 0 ? 0 : 20'000 * (1 + bytes.upto(400));
  if (bytes.upto(3) == 0) {
    cluster::DeviceGroup group{.first = 0, .count = 1, .device = cluster.device};
    group.device.speed = 0.5 + 0.1 * static_cast<double>(bytes.upto(20));
    cluster.groups.push_back(group);
  }
  return cluster;
}

planner::PlanOptions options_of(Bytes& bytes) {
  planner::PlanOptions options;
  const auto kinds = plan::training_strategies();
  const int64_t kind = bytes.upto(static_cast<int64_t>(kinds.size()));
  if (kind > 0) options.strategy = kinds[static_cast<size_t>(kind - 1)];
  options.compare = bytes.upto(7) == 0;
  options.use_all_workers = bytes.upto(7) == 1;
  options.recompute = static_cast<planner::Choice>(bytes.upto(2));
  options.time_limit = std::chrono::microseconds(1 + bytes.upto(60'000));
  options.memory_budget_bytes = int64_t{1} << bytes.upto(30);
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const planner::PlanOptions options = options_of(bytes);
  const cluster::Cluster cluster = cluster_of(bytes);
  const profile::Profile profile = profile_of(bytes);
  const auto begin = std::chrono::steady_clock::now();
  try {
    const planner::PlanResult result = planner::make_plan(profile, cluster, options);
    PENSTOCK_CHECK(result.plan || !result.reason.empty());
    if (result.plan) plan::stage_of_layer(*result.plan, profile.graph);
  } catch (const ConfigError&) {
  }
  // Sanitizers and busy machines are slow; whoever ignores the clock takes longer.
  constexpr std::chrono::seconds kSlack{15};
  PENSTOCK_CHECK(std::chrono::steady_clock::now() - begin < options.time_limit + kSlack);
  return 0;
}
