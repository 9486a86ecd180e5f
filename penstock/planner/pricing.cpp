#include "penstock/planner/pricing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "penstock/planner/prediction.h"
#include "penstock/planner/traffic.h"
#include "penstock/util/arithmetic.h"

namespace penstock::planner {

using plan::Plan;
using schedule::Kind;
using schedule::ScheduleShape;

namespace {

// Longer steps than this come from unlucky replica counts (13-11-7: 1001), not from anyone's wish.
constexpr int64_t kLongestChosenStep = 1'024;

int64_t rounded_ns(double ns) { return ns >= 9.2e18 ? INT64_MAX : std::llround(ns); }

int64_t round_up(int64_t value, int64_t multiple) { return ceil_div(value, multiple) * multiple; }

bool is_flushed(Kind kind) { return default_policy(kind) == schedule::WeightPolicy::Flush; }

// The least common multiple, or nothing when it is too long a step.
std::optional<int64_t> common_multiple(const std::vector<int>& replicas) {
  int64_t multiple = 1;
  for (const int count : replicas) {
    multiple = std::lcm(multiple, static_cast<int64_t>(count));
    if (multiple > kLongestChosenStep) return std::nullopt;
  }
  return multiple;
}

int64_t unit_of(const std::vector<int>& replicas) {
  return common_multiple(replicas).value_or(std::accumulate(replicas.begin(), replicas.end(), int64_t{0}));
}

plan::Stage priced_stage(const Context& context, const Split& split, size_t index) {
  const cluster::WorkerRange& place = split.places[index];
  plan::Stage stage;
  stage.replicas = place.count;
  stage.first_worker = place.first;
  stage.recompute = split.recompute[index];
  const LayerSums sums = stage_memory(context, split.stages[index], 0, 0, false).sums;
  for (const LayerId layer : split.stages[index]) stage.layers.push_back(context.profile.graph.layer(layer).name);
  const double speed = context.speed(place);
  const SegmentCost segment =
      on_device({saturating_add(sums.compute_ns, stage.recompute ? sums.forward_ns : 0), sums.step_ns, sums.weight_bytes}, speed);
  stage.forward_ns = on_device_ns(sums.forward_ns, speed);
  stage.backward_ns = segment.compute_ns - stage.forward_ns;
  stage.step_ns = segment.step_ns;
  stage.weight_bytes = sums.weight_bytes;
  stage.stash_bytes = sums.stash_bytes;
  stage.sync_ns = context.model->sync_ns(stage.weight_bytes, stage.replicas, context.topology().level_of(place));
  return stage;
}

int64_t bottleneck_ns(const Context& context, const Split& split, const Plan& plan, const std::vector<int64_t>& cut_bytes) {
  double slowest = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::Stage& stage = plan.stages[s];
    slowest = std::max(slowest, context.model->stage_ns({stage.compute_ns(), stage.step_ns, stage.weight_bytes}, stage.replicas,
                                                        context.topology().level_of(split.places[s]), plan.micro_batches));
  }
  for (size_t s = 0; s < cut_bytes.size(); ++s)
    slowest = std::max(slowest, context.model->cut_ns(cut_bytes[s], cut_level(context.topology(), split.places[s], split.places[s + 1])));
  return rounded_ns(slowest);
}

}  // namespace

std::vector<int> Split::replicas() const {
  std::vector<int> counts;
  for (const cluster::WorkerRange& place : places) counts.push_back(place.count);
  return counts;
}

int Split::num_workers() const {
  int workers = 0;
  for (const cluster::WorkerRange& place : places) workers += place.count;
  return workers;
}

int64_t chosen_micro_batches(Kind kind, const std::vector<int>& replicas) {
  const int64_t unit = unit_of(replicas);
  switch (kind) {
    case Kind::Serial:
    case Kind::ModelParallel:
      return 1;
    case Kind::DataParallel:
      return replicas.front();
    case Kind::GPipe:
    case Kind::OneFOneBFlush:
      return round_up(4 * static_cast<int64_t>(replicas.size()), unit);
    case Kind::TwoBuffered: {
      const ScheduleShape shape{.replicas = replicas, .micro_batches = 1, .accumulate = 1, .policy = default_policy(kind)};
      return round_up(pipeline_depth(shape), unit);
    }
    case Kind::OneFOneB:
    case Kind::ForwardOnly:
      return unit;
  }
  return unit;
}

int64_t chosen_micro_batches(const Context& context, Kind kind, const std::vector<int>& replicas) {
  const int64_t chosen = chosen_micro_batches(kind, replicas);
  const int64_t most = std::min(context.most_micro_batches(), kMaxMicroBatchesPerStep);
  if (context.options.mini_batch == 0 || !is_flushed(kind)) return std::min(chosen, context.most_micro_batches());
  const int64_t unit = unit_of(replicas);
  return most < unit ? most : most / unit * unit;
}

MemoryModel memory_model(const Context& context, Kind kind, schedule::WeightPolicy policy, int64_t micro_batches) {
  return {.kind = kind,
          .policy = policy,
          .limit_bytes = context.options.memory_limit_bytes,
          .micro_batches = micro_batches,
          .max_workers = context.workers,
          .optimizer_state_per_weight = context.options.optimizer_state_per_weight};
}

StageMemory stage_memory(const Context& context, const std::vector<LayerId>& layers, int64_t input_bytes, int64_t output_bytes,
                         bool recompute) {
  StageMemory memory{.sums = {}, .input_bytes = input_bytes, .output_bytes = output_bytes, .recompute = recompute};
  for (const LayerId id : layers) {
    const PlannedLayer& layer = context.layers[id.index()];
    memory.sums.forward_ns += layer.forward_ns;
    memory.sums.compute_ns += layer.compute_ns;
    memory.sums.step_ns += layer.step_ns;
    memory.sums.weight_bytes += layer.weight_bytes;
    memory.sums.stash_bytes += layer.stash_bytes;
  }
  return memory;
}

Plan price(const Context& context, const Split& split, int64_t micro_batches) {
  Plan plan;
  plan.model = context.profile.model;
  plan.strategy = to_string(split.kind);
  plan.weights = to_string(split.policy);
  plan.cost_model = context.model->name();
  plan.sync = to_string(context.model->sync());
  plan.optimizer_state_per_weight = context.options.optimizer_state_per_weight;
  plan.micro_batch_size = profile::samples_per_micro_batch(context.profile);
  plan.micro_batches = micro_batches > 0                   ? micro_batches
                       : context.options.micro_batches > 0 ? context.options.micro_batches
                                                           : chosen_micro_batches(context, split.kind, split.replicas());
  plan.cluster = context.cluster;
  std::vector<StageId> stage_of_layer(context.layers.size());
  for (size_t s = 0; s < split.stages.size(); ++s) {
    plan.stages.push_back(priced_stage(context, split, s));
    for (const LayerId layer : split.stages[s]) stage_of_layer[layer.index()] = StageId{static_cast<int32_t>(s)};
  }
  plan.depth =
      memory_model(context, split.kind, split.policy, plan.micro_batches).in_flight(split.places.front().count, plan.num_workers());
  Traffic traffic = traffic_of(context, stage_of_layer, split.stages.size());
  plan.links = std::move(traffic.links);
  plan.bottleneck_ns = bottleneck_ns(context, split, plan, traffic.cut_bytes);
  plan.bytes_per_sample = bytes_per_sample(plan, *context.model);
  predict(context, split, traffic.cut_bytes, plan);
  return plan;
}

}  // namespace penstock::planner
