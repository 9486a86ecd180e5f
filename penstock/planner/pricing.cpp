#include "penstock/planner/pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "penstock/simulate/simulator.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"

namespace penstock::planner {

using plan::Plan;
using schedule::Kind;
using schedule::ScheduleShape;

namespace {

// Longer steps than this come from unlucky replica counts (13-11-7: 1001), not from anyone's wish.
constexpr int64_t kLongestChosenStep = 1'024;
// Simulated micro-batches: enough that filling and draining the pipeline stays below about 2 % of the time.
constexpr int64_t kLeastSimulated = 256;
constexpr int64_t kSimulatedPerStage = 64;
constexpr int64_t kSimulatedActions = 1'000'000;

int64_t scaled_ns(int64_t ns, double speed) {
  if (speed == 1.0) return ns;
  const double scaled = std::round(static_cast<double>(ns) / speed);
  return scaled >= 9.2e18 ? INT64_MAX : static_cast<int64_t>(scaled);
}

int64_t rounded_ns(double ns) { return ns >= 9.2e18 ? INT64_MAX : std::llround(ns); }

int64_t round_up(int64_t value, int64_t multiple) { return ceil_div(value, multiple) * multiple; }

// The least common multiple, or nothing when it is too long a step.
std::optional<int64_t> common_multiple(const std::vector<int>& replicas) {
  int64_t multiple = 1;
  for (const int count : replicas) {
    multiple = std::lcm(multiple, static_cast<int64_t>(count));
    if (multiple > kLongestChosenStep) return std::nullopt;
  }
  return multiple;
}

MemoryModel memory_model_of(const Context& context, const Split& split, int64_t micro_batches) {
  return {.kind = split.kind,
          .policy = split.policy,
          .limit_bytes = 0,
          .micro_batches = micro_batches,
          .max_workers = std::max(context.workers, std::accumulate(split.replicas.begin(), split.replicas.end(), 0))};
}

plan::Stage priced_stage(const Context& context, const std::vector<LayerId>& layers, int replicas) {
  plan::Stage stage;
  stage.replicas = replicas;
  for (const LayerId layer : layers) {
    const profile::LayerCost& cost = context.costs[layer.index()];
    stage.layers.push_back(context.profile.graph.layer(layer).name);
    stage.forward_ns += cost.forward_ns;
    stage.backward_ns += cost.backward_ns;
    stage.step_ns += cost.step_ns;
    stage.weight_bytes += cost.weight_bytes;
    stage.stash_bytes += cost.stash_bytes;
  }
  stage.sync_ns = context.model->sync_ns(stage.weight_bytes, replicas);
  return stage;
}

// A value read in two later stages travels to both, and crosses each boundary on the way once.
struct Traffic {
  std::vector<plan::Link> links;
  std::vector<int64_t> cut_bytes;  ///< across the boundary after stage k
};

Traffic traffic_of(const Context& context, const Plan& plan) {
  std::map<std::pair<StageId, StageId>, int64_t> link_bytes;
  std::map<graph::ValueRef, std::pair<StageId, StageId>> reach;
  for (const graph::CrossingValue& crossing :
       graph::crossing_values(context.profile.graph, plan::stage_of_layer(plan, context.profile.graph))) {
    link_bytes[{crossing.from, crossing.to}] +=
        context.layers[crossing.value.layer.index()].output_bytes[static_cast<size_t>(crossing.value.output)];
    auto& span = reach.try_emplace(crossing.value, crossing.from, crossing.to).first->second;
    span.second = std::max(span.second, crossing.to);
  }
  Traffic traffic;
  for (const auto& [stages, bytes] : link_bytes) traffic.links.push_back({stages.first, stages.second, bytes});
  traffic.cut_bytes.assign(plan.stages.size() - 1, 0);
  for (const auto& [value, span] : reach) {
    for (size_t k = span.first.index(); k < span.second.index(); ++k) {
      traffic.cut_bytes[k] += context.layers[value.layer.index()].output_bytes[static_cast<size_t>(value.output)];
    }
  }
  return traffic;
}

int64_t bottleneck_ns(const Context& context, const Plan& plan, const std::vector<int64_t>& cut_bytes) {
  double slowest = 0;
  for (const plan::Stage& stage : plan.stages) {
    slowest = std::max(
        slowest, context.model->stage_ns({stage.compute_ns(), stage.step_ns, stage.weight_bytes}, stage.replicas, plan.micro_batches));
  }
  for (const int64_t bytes : cut_bytes) slowest = std::max(slowest, context.model->cut_ns(bytes));
  return rounded_ns(slowest);
}

// The number of micro-batches to simulate, the same for every strategy up to a whole number of steps; 0 when that would be too long.
int64_t simulated_micro_batches(const Context& context, const Plan& plan) {
  const int most_stages = std::min(context.workers, context.profile.graph.num_layers());
  const int64_t wanted = round_up(std::max(kLeastSimulated, kSimulatedPerStage * most_stages), plan.micro_batches);
  const auto stages = static_cast<int64_t>(plan.stages.size());
  const int64_t actions_each = 2 * stages + 4 * static_cast<int64_t>(plan.links.size());
  const int64_t actions_per_step = 3 * int64_t{plan.num_workers()};
  // Per micro-batch its own actions and its share of sync, step and free.
  const int64_t affordable = kSimulatedActions * plan.micro_batches / (actions_each * plan.micro_batches + actions_per_step);
  if (wanted <= affordable) return wanted;
  const int64_t whole_steps = affordable / plan.micro_batches * plan.micro_batches;
  return whole_steps >= 4 * stages ? whole_steps : 0;
}

// Time per micro-batch of a plan too large to simulate, from its slowest part and the number of stages.
double estimated_ns(const Plan& plan, Kind kind) {
  const auto slowest_ns = static_cast<double>(plan.bottleneck_ns);
  const auto stages = static_cast<double>(plan.stages.size());
  if (kind == Kind::ModelParallel) {
    double all_ns = 0;
    for (const plan::Stage& stage : plan.stages) all_ns += static_cast<double>(stage.compute_ns());
    return std::max(all_ns, slowest_ns);
  }
  if (kind != Kind::GPipe && kind != Kind::OneFOneBFlush) return slowest_ns;
  // Filling and draining take as long as one micro-batch for each further stage, once per step.
  return slowest_ns * (1 + (stages - 1) / static_cast<double>(plan.micro_batches));
}

void estimate_plan(const Context& context, const Split& split, Plan& plan) {
  plan.throughput_samples_per_s = static_cast<double>(plan.micro_batch_size) * 1e9 / std::max(estimated_ns(plan, split.kind), 1.0);
  const MemoryModel memory = memory_model_of(context, split, plan.micro_batches);
  int workers_from_here = plan.num_workers();
  for (plan::Stage& stage : plan.stages) {
    const LayerSums sums{stage.compute_ns(), stage.step_ns, stage.weight_bytes, stage.stash_bytes};
    stage.memory_bytes = memory.stage_bytes(sums, stage.replicas, workers_from_here);
    workers_from_here -= stage.replicas;
  }
  plan.notes.push_back(
      "This plan is too large to be simulated: its throughput is estimated from its slowest part and its number of stages.");
}

void simulate_plan(const Context& context, const Split& split, Plan& plan) {
  const int64_t micro_batches = simulated_micro_batches(context, plan);
  if (micro_batches == 0) {
    estimate_plan(context, split, plan);
    return;
  }
  const ScheduleShape shape{
      .replicas = split.replicas, .micro_batches = micro_batches, .accumulate = plan.micro_batches, .policy = split.policy};
  std::vector<schedule::StageLink> links;
  for (const plan::Link& link : plan.links) links.push_back({link.from, link.to});
  const simulate::Result result = simulate::simulate(schedule::lower(generate(split.kind, shape), links), simulate::costs_of(plan));
  plan.throughput_samples_per_s = result.throughput_samples_per_s;
  for (size_t w = 0; w < result.peak_memory_bytes.size(); ++w) {
    plan::Stage& stage = plan.stages[shape.stage_of(WorkerId{static_cast<int32_t>(w)}).index()];
    stage.memory_bytes = std::max(stage.memory_bytes, result.peak_memory_bytes[w]);
  }
}

}  // namespace

Context::Context(const profile::Profile& profile_in, const cluster::Cluster& cluster_in, const PlanOptions& options_in)
    : profile(profile_in), cluster(cluster_in), options(options_in) {
  profile::validate(profile);
  cluster::validate(cluster);
  workers = cluster.num_workers();
  if (workers > kMaxPlannedWorkers) {
    throw ConfigError(
        fmt::format("the cluster has {} workers; plans are made for at most {}: describe a part of it", workers, kMaxPlannedWorkers));
  }
  if (options.micro_batches < 0 || options.micro_batches > kMaxMicroBatchesPerStep) {
    throw ConfigError(
        fmt::format("expected 0 (chosen) to {} micro-batches per step, found {}", kMaxMicroBatchesPerStep, options.micro_batches));
  }
  if (options.memory_limit_bytes < 0)
    throw ConfigError(fmt::format("expected a memory limit of at least 0, found {}", options.memory_limit_bytes));
  memory_limit_bytes = options.memory_limit_bytes > 0 ? options.memory_limit_bytes : cluster.device.memory_bytes;
  model = make_cost_model(options.cost_model, cluster);
  for (profile::LayerCost cost : profile.costs) {
    cost.forward_ns = scaled_ns(cost.forward_ns, cluster.device.speed);
    cost.backward_ns = scaled_ns(cost.backward_ns, cluster.device.speed);
    cost.step_ns = scaled_ns(cost.step_ns, cluster.device.speed);
    layers.push_back(
        {saturating_add(cost.forward_ns, cost.backward_ns), cost.step_ns, cost.weight_bytes, cost.stash_bytes, cost.output_bytes});
    costs.push_back(std::move(cost));
  }
  check_totals(profile.graph, layers);
}

int64_t chosen_micro_batches(Kind kind, const std::vector<int>& replicas) {
  const ScheduleShape shape{.replicas = replicas, .micro_batches = 1, .accumulate = 1, .policy = default_policy(kind)};
  const int64_t unit = common_multiple(replicas).value_or(shape.num_workers());
  switch (kind) {
    case Kind::Serial:
    case Kind::ModelParallel:
    case Kind::ForwardOnly:
      return 1;
    case Kind::DataParallel:
      return replicas.front();
    case Kind::OneFOneB:
      return unit;
    case Kind::TwoBuffered:
      return round_up(pipeline_depth(shape), unit);
    case Kind::GPipe:
    case Kind::OneFOneBFlush:
      return round_up(4 * static_cast<int64_t>(replicas.size()), unit);
  }
  return unit;
}

Plan price(const Context& context, const Split& split) {
  Plan plan;
  plan.model = context.profile.model;
  plan.strategy = to_string(split.kind);
  plan.weights = to_string(split.policy);
  plan.cost_model = context.model->name();
  plan.micro_batch_size = profile::samples_per_micro_batch(context.profile);
  plan.micro_batches = context.options.micro_batches > 0 ? context.options.micro_batches : chosen_micro_batches(split.kind, split.replicas);
  plan.cluster = context.cluster;
  for (size_t s = 0; s < split.stages.size(); ++s) plan.stages.push_back(priced_stage(context, split.stages[s], split.replicas[s]));
  plan.depth = memory_model_of(context, split, plan.micro_batches).in_flight(split.replicas.front(), plan.num_workers());
  Traffic traffic = traffic_of(context, plan);
  plan.links = std::move(traffic.links);
  plan.bottleneck_ns = bottleneck_ns(context, plan, traffic.cut_bytes);
  simulate_plan(context, split, plan);
  return plan;
}

}  // namespace penstock::planner
