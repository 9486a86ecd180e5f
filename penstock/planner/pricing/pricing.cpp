#include "penstock/planner/pricing/pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "penstock/plan/boundaries.h"
#include "penstock/planner/pricing/buckets.h"
#include "penstock/planner/pricing/pass_memory.h"
#include "penstock/planner/pricing/prediction.h"
#include "penstock/planner/pricing/round_trip.h"
#include "penstock/planner/pricing/traffic.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

using plan::Plan;

namespace {

int64_t host_bytes_per_s(const Context& context, const Split& split, size_t stage) {
  if (split.worker_of_replica.empty()) return context.host_bytes_per_s(split.places[stage]);
  int64_t least = INT64_MAX;
  for (const int worker : split.workers_of(stage))
    least = std::min(least, context.host_bytes_per_s({worker, 1}));
  return least;
}

plan::Stage priced_stage(const Context& context, const Split& split, size_t index) {
  const cluster::WorkerRange& place = split.places[index];
  plan::Stage stage;
  stage.replicas = place.count;
  stage.first_worker = split.worker_of_replica.empty() ? place.first : -1;
  stage.recompute = split.recompute[index];
  if (traits(split.strategy).takes_keep) stage.keep = split.keep_of(index);
  stage.shard_optimizer =
      place.count > 1 && (split.shard_optimizer.empty() ? context.shard_optimizer == Choice::Always
                                                        : split.shard_optimizer[index]);
  const LayerSums sums = stage_memory(context, split.stages[index], 0, 0, stage.recompute).sums;
  int64_t backward_weight_ns = 0;
  for (const LayerId layer : split.stages[index]) {
    stage.layers.push_back(context.profile.graph.layer(layer).name);
    backward_weight_ns += context.layers[layer.index()].backward_weight_ns;
    stage.short_weight_bytes += context.layers[layer.index()].short_weight_bytes;
    stage.constant_bytes =
        saturating_add(stage.constant_bytes, context.layers[layer.index()].constant_bytes);
  }
  const double speed = stage_speed(context, split, index);
  const SegmentCost segment =
      on_device({saturating_add(sums.compute_ns, stage.recompute ? sums.forward_ns : 0),
                 sums.step_ns, sums.weight_bytes, sums.accumulate_ns},
                speed);
  stage.forward_ns = on_device_ns(sums.forward_ns, speed);
  // Rounded so that all passes together take what the partitioner counted.
  stage.backward_ns =
      std::max<int64_t>(0, segment.compute_ns - (stage.recompute ? 2 : 1) * stage.forward_ns);
  stage.backward_weight_ns = std::min(on_device_ns(backward_weight_ns, speed), stage.backward_ns);
  stage.accumulate_ns = segment.accumulate_ns;
  stage.step_ns = segment.step_ns;
  stage.weight_bytes = sums.weight_bytes;
  stage.stash_bytes = sums.stash_bytes;
  const bool moves = split.offload.empty() ? context.offload == Choice::Always
                                           : static_cast<bool>(split.offload[index]);
  const int64_t host_speed = moves ? host_bytes_per_s(context, split, index) : 0;
  stage.offload = host_speed > 0 && stage.stash_bytes > 0;
  if (stage.offload)
    stage.move_ns =
        nearest(static_cast<double>(stage.stash_bytes) * 1e9 / static_cast<double>(host_speed));
  const int level = stage_level(context, split, index);
  stage.sync_ns = context.model->sync_ns(stage.weight_bytes, stage.replicas, level);
  add_buckets(context, split.stages[index], level, speed, stage);
  return stage;
}

// Where workers hold several stages, what passes between the same two workers shares their link:
// all boundaries whose micro-batches of one copy go between them.
double slowest_shared_cut_ns(const Context& context, const Split& split,
                             const std::vector<int64_t>& cut_bytes, const Plan& plan) {
  std::map<std::pair<int, int>, double> links_ns;
  double slowest = 0;
  for (size_t s = 0; s < cut_bytes.size(); ++s) {
    const std::span<const int> from = split.workers_of(s);
    const std::span<const int> to = split.workers_of(s + 1);
    for (size_t k = 0; k < std::min(from.size(), to.size()); ++k) {
      if (from[k] == to[k]) continue;
      double& ns = links_ns[std::minmax(from[k], to[k])];
      ns += coded_cut_ns(context, plan, s, cut_bytes[s],
                         context.topology().level_between(from[k], to[k])) /
            static_cast<double>(from.size());
      slowest = std::max(slowest, ns);
    }
  }
  return slowest;
}

double slowest_stage_ns(const Context& context, const Plan& plan) {
  if (plan.shares_workers()) return busiest_worker(context, plan).ns;
  double slowest = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::Stage& stage = plan.stages[s];
    slowest = std::max(slowest, stage_ns(context, plan, s));
    if (stage.offload)
      slowest = std::max(slowest, static_cast<double>(stage.move_ns) / stage.replicas);
  }
  return slowest;
}

int64_t received_bytes(const Plan& plan, size_t stage) {
  int64_t bytes = 0;
  for (const plan::Link& link : plan.links) {
    if (link.to.index() == stage) bytes = saturating_add(bytes, link.bytes);
  }
  return bytes;
}

double slowest_cut_ns(const Context& context, const Split& split,
                      const std::vector<int64_t>& cut_bytes, const Plan& plan) {
  if (!split.worker_of_replica.empty())
    return slowest_shared_cut_ns(context, split, cut_bytes, plan);
  double slowest = 0;
  for (size_t s = 0; s < cut_bytes.size(); ++s)
    slowest = std::max(
        slowest, coded_cut_ns(context, plan, s, cut_bytes[s],
                              cut_level(context.topology(), split.places[s], split.places[s + 1])));
  return slowest;
}

}  // namespace

Priced price_parts(const Context& context, const Split& split, int64_t micro_batches) {
  Plan plan;
  plan.model = context.profile.model;
  plan.strategy = split.strategy;
  plan.weights = split.policy;
  plan.compensation = compensation_of(context, split.policy);
  plan.explanation.cost_model = context.model->name();
  plan.set_sync_method(context.options.sync.value_or(plan::SyncMethod()));
  plan.gradient_precision = context.model->precision();
  plan.precision = context.profile.precision;
  plan.optimizer_state_per_weight = context.options.optimizer_state_per_weight;
  plan.prediction.compute_spread = context.profile.pass.spread;
  plan.prediction.compute_error = context.profile.pass.error;
  plan.micro_batch_size = profile::samples_per_micro_batch(context.profile);
  plan.micro_batches = micro_batches > 0               ? micro_batches
                       : context.options.micro_batches ? *context.options.micro_batches
                                                       : chosen_micro_batches(context, split);
  plan.cluster = context.cluster;
  plan.worker_of_replica = split.worker_of_replica;
  plan.slack = split.slack;
  std::vector<StageId> stage_of_layer(context.layers.size());
  for (size_t s = 0; s < split.stages.size(); ++s) {
    plan.stages.push_back(priced_stage(context, split, s));
    for (const LayerId layer : split.stages[s])
      stage_of_layer[layer.index()] = StageId{static_cast<int32_t>(s)};
  }
  // Of a worker that holds several stages, those of the pipeline that its first one begins.
  MemoryModel memory =
      memory_model(context, split.strategy, split.policy, plan.micro_batches, split.slack, 0);
  memory.max_workers = plan.num_workers();
  memory.keep = split.keep_of(0);
  plan.depth = memory.in_flight(split.places.front().count, plan.num_workers());
  Traffic traffic = traffic_of(context, stage_of_layer, split.stages.size());
  plan.links = std::move(traffic.links);
  plan::set_boundaries(plan, context.boundary());
  plan::set_widths(plan, context.options.token_width);
  plan::take_boundaries(plan, context.options.given_boundaries);
  std::vector<StageMemory> memories = stage_memories(context, split, traffic.cut_bytes);
  // The first layer's, where norms need memory. Workers with several stages may keep fewer.
  const int64_t in_flight = plan.shares_workers() ? 1 : plan.depth;
  for (size_t s = 0; s < memories.size(); ++s) {
    if (tied_norm_bytes(context, split.stages[s]) > 0)
      memories[s].working_bytes = working_bytes(context, split.stages[s], memories[s], in_flight);
    plan.stages[s].working_bytes = memories[s].working_bytes;
  }
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (!plan.stages[s].recompute) continue;
    plan.stages[s].stash_bytes =
        remade_stash_bytes(context, split.stages[s], received_bytes(plan, s));
  }
  add_pass_memory(context, split, stage_of_layer, memories, plan);
  const double slowest_ns = slowest_stage_ns(context, plan);
  plan.prediction.bottleneck_ns =
      nearest(std::max(slowest_ns, slowest_cut_ns(context, split, traffic.cut_bytes, plan)));
  plan.prediction.bytes_per_sample = bytes_per_sample(plan, *context.model);
  double least_ns = slowest_ns;
  if (traits(plan.strategy).flushes()) {
    least_ns = std::max(least_ns, static_cast<double>(round_trip_ns(context.topology(), plan)) /
                                      static_cast<double>(plan.micro_batches));
  }
  return {std::move(plan), std::move(traffic.cut_bytes), least_ns};
}

bool shard_where_needed(const Context& context, const Split& split, Plan& plan) {
  if (context.shard_optimizer != Choice::Auto || !split.shard_optimizer.empty()) return false;
  bool changed = false;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    plan::Stage& stage = plan.stages[s];
    if (stage.shard_optimizer || stage.replicas == 1 || stage_fits(context, split, plan, s))
      continue;
    stage.shard_optimizer = true;
    changed = true;
  }
  // Predictions keep the largest number.
  for (plan::Stage& stage : plan.stages) stage.memory_bytes = changed ? 0 : stage.memory_bytes;
  return changed;
}

namespace {

Plan price_as_it_is(const Context& context, const Split& split, int64_t micro_batches) {
  Priced priced = price_parts(context, split, micro_batches);
  predict(context, split, priced.cut_bytes, priced.plan);
  if (shard_where_needed(context, split, priced.plan))
    predict(context, split, priced.cut_bytes, priced.plan);
  return std::move(priced.plan);
}

/// Says what a stage needs that fits only if its activations are smaller than guessed.
void note_guessed_memory(const Context& context, const Split& split, Plan& plan) {
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const int64_t needed = plan.stages[s].memory_bytes;
    const int64_t limit = stage_limit_bytes(context, split, s);
    if (limit == 0 || needed <= limit || !stage_fits(context, split, plan, s)) continue;
    plan.explanation.notes.push_back(fmt::format(
        "Stage {} may not fit: it needs {} of {} if all activations are as large as guessed, which "
        "may be {:.0f} % too much, and {} at least. A measured profile knows.",
        s, format_bytes(needed), format_bytes(limit), 100 * context.stash_uncertainty,
        format_bytes(least_stage_bytes(context, plan, s))));
    return;
  }
}

Plan price_either_way(const Context& context, const Split& split, int64_t micro_batches) {
  Plan plan = price_as_it_is(context, split, micro_batches);
  const bool recomputes =
      std::find(split.recompute.begin(), split.recompute.end(), true) != split.recompute.end();
  if (context.offload != Choice::Auto || !split.offload.empty() || !recomputes) return plan;
  Split moving = split;
  moving.offload = split.recompute;
  moving.recompute.assign(split.recompute.size(), false);
  Plan moved = price_as_it_is(context, moving, micro_batches);
  bool is_better =
      moved.prediction.throughput_samples_per_s > plan.prediction.throughput_samples_per_s;
  for (size_t s = 0; s < moved.stages.size(); ++s)
    is_better = is_better && stage_fits(context, moving, moved, s);
  return is_better ? moved : plan;
}

}  // namespace

Plan price(const Context& context, const Split& split, int64_t micro_batches) {
  Plan plan = price_either_way(context, split, micro_batches);
  note_guessed_memory(context, split, plan);
  return plan;
}

double stage_ns(const Context& context, const Plan& plan, size_t index,
                std::span<const int> worker_of_replica) {
  const plan::Stage& stage = plan.stages[index];
  const cluster::Topology& topology = context.topology();
  const int level = worker_of_replica.empty()
                        ? topology.level_of({stage.first_worker, stage.replicas})
                        : level_of_all(topology, worker_of_replica);
  return context.model->stage_ns(
      {stage.work_ns(), stage.step_ns, stage.weight_bytes, stage.accumulate_ns,
       saturating_add(stage.compute_ns(), stage.step_ns)},
      stage.replicas, level, plan.micro_batches);
}

BusiestWorker busiest_worker(const Context& context, const Plan& plan) {
  std::vector<BusiestWorker> workers(static_cast<size_t>(plan.num_workers()));
  const std::vector<std::vector<int>> worker_of_replica = plan::workers_by_stage(plan);
  for (size_t s = 0; s < worker_of_replica.size(); ++s) {
    const double ns = stage_ns(context, plan, s, worker_of_replica[s]);
    for (const int worker : worker_of_replica[s]) {
      BusiestWorker& busy = workers[static_cast<size_t>(worker)];
      busy.worker = worker;
      busy.ns += ns;
      busy.stages.push_back(s);
    }
  }
  return *std::max_element(workers.begin(), workers.end(),
                           [](const auto& a, const auto& b) { return a.ns < b.ns; });
}

}  // namespace penstock::planner
