#include "penstock/planner/pricing/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "penstock/plan/weight_rules.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/common_multiple.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::planner {

using plan::Plan;
using plan::Strategy;
using schedule::ScheduleShape;

namespace {

// Longer steps than this come from unlucky replica counts (13-11-7: 1001), not from anyone's wish.
constexpr int64_t kLongestChosenStep = 1'024;

int64_t round_up(int64_t value, int64_t multiple) { return ceil_div(value, multiple) * multiple; }

int64_t unit_of(const std::vector<int>& replicas) {
  return common_multiple(replicas, kLongestChosenStep)
      .value_or(std::accumulate(replicas.begin(), replicas.end(), int64_t{0}));
}

// Four micro-batches for each worker: as many as a straight pipeline has for each stage, so that
// filling and draining cost replicated stages no larger a share of the step.
int64_t usual_flushed_step(int workers, int64_t unit) {
  const int64_t most = std::max(kMaxMicroBatchesPerStep / unit * unit, unit);
  return std::min(round_up(4 * int64_t{workers}, unit), most);
}

}  // namespace

std::vector<int> Split::replicas() const {
  std::vector<int> counts;
  for (const cluster::WorkerRange& place : places) counts.push_back(place.count);
  for (size_t s = 0; s < teams.size(); ++s) counts[s] /= teams[s];
  return counts;
}

int Split::num_workers() const {
  if (!worker_of_replica.empty())
    return *std::max_element(worker_of_replica.begin(), worker_of_replica.end()) + 1;
  int workers = 0;
  for (const cluster::WorkerRange& place : places) workers += place.count;
  return workers;
}

std::span<const int> Split::workers_of(size_t stage) const {
  return std::span(worker_of_replica)
      .subspan(static_cast<size_t>(places[stage].first), static_cast<size_t>(places[stage].count));
}

int level_of_all(const cluster::Topology& topology, std::span<const int> workers) {
  const auto [least, most] = std::minmax_element(workers.begin(), workers.end());
  return topology.level_between(*least, *most);
}

int stage_level(const Context& context, const Split& split, size_t stage) {
  return split.worker_of_replica.empty()
             ? context.topology().level_of(split.places[stage])
             : level_of_all(context.topology(), split.workers_of(stage));
}

double stage_speed(const Context& context, const Split& split, size_t stage) {
  if (split.worker_of_replica.empty()) return context.speed(split.places[stage]);
  double slowest = HUGE_VAL;
  for (const int worker : split.workers_of(stage))
    slowest = std::min(slowest, context.speed({worker, 1}));
  return slowest;
}

int64_t stage_limit_bytes(const Context& context, const Split& split, size_t stage) {
  if (split.worker_of_replica.empty()) return context.limit_bytes(split.places[stage]);
  int64_t least = 0;
  for (const int worker : split.workers_of(stage)) {
    const int64_t limit = context.limit_bytes({worker, 1});
    if (limit > 0 && (least == 0 || limit < least)) least = limit;
  }
  return least;
}

bool stage_fits(const Context& context, const Split& split, const Plan& plan, size_t stage) {
  const int64_t limit = stage_limit_bytes(context, split, stage);
  return limit == 0 || least_stage_bytes(context, plan, stage) <= limit;
}

int64_t least_stage_bytes(const Context& context, const Plan& plan, size_t index) {
  const plan::Stage& stage = plan.stages[index];
  if (context.stash_uncertainty <= 0) return stage.memory_bytes;
  // At least one version, one set of gradients and the optimiser's state are no activations.
  const double weights =
      static_cast<double>(stage.weight_bytes) *
          (2 + plan.optimizer_state_per_weight / static_cast<double>(stage.kept_state_parts())) +
      static_cast<double>(stage.constant_bytes);
  const double activations = std::max(static_cast<double>(stage.memory_bytes) - weights, 0.0);
  return stage.memory_bytes - rounded_down(context.stash_uncertainty * activations);
}

int64_t chosen_micro_batches(Strategy strategy, const std::vector<int>& replicas) {
  const plan::StrategyTraits& row = traits(strategy);
  if (row.extent != plan::Extent::Pipeline) return replicas.front();
  if (row.is_sequential()) return 1;
  const int64_t unit = unit_of(replicas);
  if (!row.trains) return unit;
  if (row.flushes())
    return usual_flushed_step(std::accumulate(replicas.begin(), replicas.end(), 0), unit);
  const plan::WeightPolicy policy = default_policy(strategy);
  if (!traits(policy).fills_pipeline) return unit;
  const ScheduleShape shape{
      .replicas = replicas, .micro_batches = 1, .accumulate = 1, .policy = policy};
  return round_up(pipeline_depth(shape), unit);
}

int64_t chosen_micro_batches(const Context& context, Strategy strategy,
                             const std::vector<int>& replicas) {
  const int64_t chosen = chosen_micro_batches(strategy, replicas);
  const int64_t most = std::min(context.most_micro_batches(), kMaxMicroBatchesPerStep);
  if (!context.options.mini_batch || !traits(strategy).flushes())
    return std::min(chosen, context.most_micro_batches());
  const int64_t unit = unit_of(replicas);
  return most < unit ? most : most / unit * unit;
}

int64_t chosen_micro_batches(const Context& context, const Split& split) {
  const std::vector<int> replicas = split.replicas();
  const plan::StrategyTraits& row = traits(split.strategy);
  if (!row.is_chunked() || context.options.mini_batch)
    return chosen_micro_batches(context, split.strategy, replicas);
  const int64_t wanted = usual_flushed_step(split.num_workers(), unit_of(replicas));
  return std::min(wanted, context.most_micro_batches());
}

plan::Compensation compensation_of(const Context& context, plan::WeightPolicy policy) {
  const plan::Compensation asked = context.options.compensation;
  return compensation_refusal(asked, policy).empty() ? asked : plan::Compensation::None;
}

bool may_share_weights(const Context& context, plan::WeightPolicy policy) {
  return context.on_processors && context.options.share_weights &&
         policy == plan::WeightPolicy::Flush && context.topology().path(1).by_reference;
}

MemoryModel memory_model(const Context& context, Strategy strategy, plan::WeightPolicy policy,
                         int64_t micro_batches, int64_t slack,
                         std::optional<int64_t> gradient_groups) {
  int64_t weights = 0;
  int64_t short_weights = 0;
  for (const PlannedLayer& layer : context.layers) {
    weights = saturating_add(weights, layer.weight_bytes);
    short_weights = saturating_add(short_weights, layer.short_weight_bytes);
  }
  return {.strategy = strategy,
          .policy = policy,
          .compensation = compensation_of(context, policy),
          .limit_bytes = context.options.memory_limit_bytes.value_or(0),
          .micro_batches = micro_batches,
          .max_workers = context.workers,
          .optimizer_state_per_weight = context.options.optimizer_state_per_weight,
          .short_weight_share =
              weights > 0 ? static_cast<double>(short_weights) / static_cast<double>(weights) : 0,
          .slack = slack,
          .gradient_groups = gradient_groups,
          .shard_optimizer =
              context.shard_optimizer != Choice::Never || may_share_weights(context, policy),
          .frees_gradients = context.on_processors,
          .steps_in_pass = context.on_processors,
          .offload = context.offload == Choice::Always,
          .stash_uncertainty = context.stash_uncertainty};
}

std::optional<int64_t> gradient_groups(const Context& context, const Split& split) {
  const std::optional<int64_t> least = context.options.gradient_groups;
  if (!least || !traits(split.policy).drains) return std::nullopt;
  const int64_t common = common_multiple(split.replicas()).value_or(INT64_MAX);
  return common < *least ? round_up(*least, common) : common;
}

int64_t working_bytes(const Context& context, const std::vector<LayerId>& layers,
                      int64_t message_bytes) {
  int64_t most = 0;
  int64_t freed = 0;
  for (size_t i = layers.size(); i-- > 0;) {
    const PlannedLayer& layer = context.layers[layers[i].index()];
    most = std::max(most, layer.working_bytes - freed);
    freed = saturating_add(freed, layer.stash_bytes);
  }
  return std::max<int64_t>(most - message_bytes, 0);
}

int64_t tied_norm_bytes(const Context& context, const std::vector<LayerId>& layers) {
  const graph::ModelGraph& graph = context.profile.graph;
  const std::set<LayerId> own(layers.begin(), layers.end());
  if (!own.contains(LayerId{0})) return 0;
  int64_t bytes = 0;
  int64_t largest = 0;
  for (const graph::TieGroup& group : graph::tie_groups(graph)) {
    const auto elsewhere = std::ranges::count_if(
        group, [&](const graph::ParameterRef& use) { return !own.contains(use.layer); });
    if (elsewhere == 0) continue;
    const graph::ParameterRef& borrowed = group.back();
    const std::vector<graph::WeightTie>& ties = graph.layer(borrowed.layer).ties;
    const auto tie = std::ranges::find(ties, borrowed.parameter, &graph::WeightTie::parameter);
    const int64_t size = context.profile.costs[borrowed.layer.index()]
                             .tied_bytes[static_cast<size_t>(tie - ties.begin())];
    bytes = saturating_add(bytes, saturating_mul(elsewhere + 1, size));
    largest = std::max(largest, size);
  }
  return saturating_add(bytes, saturating_mul(2, largest));
}

int64_t working_bytes(const Context& context, const std::vector<LayerId>& layers,
                      const StageMemory& memory, int64_t in_flight) {
  const int64_t messages = saturating_add(memory.input_bytes, memory.output_bytes);
  const int64_t norm = tied_norm_bytes(context, layers);
  if (norm == 0) return working_bytes(context, layers, messages);
  const int64_t beside = saturating_add(MemoryModel::stash_bytes(memory, in_flight),
                                        MemoryModel::buffer_bytes(memory));
  return std::max(working_bytes(context, layers, messages), norm - beside);
}

int64_t received_stash_bytes(const Context& context, const std::vector<LayerId>& layers) {
  const std::set<LayerId> own(layers.begin(), layers.end());
  std::set<graph::ValueRef> values;
  int64_t bytes = 0;
  for (const LayerId id : layers) {
    const auto& counted_by = context.layers[id.index()].counted_by;
    for (size_t i = 0; i < counted_by.size(); ++i) {
      const graph::ValueRef& value = context.profile.graph.layer(id).inputs[i];
      if (!counted_by[i] || own.contains(*counted_by[i]) || !values.insert(value).second) continue;
      bytes = saturating_add(
          bytes,
          context.layers[value.layer.index()].output_bytes[static_cast<size_t>(value.output)]);
    }
  }
  return bytes;
}

int64_t remade_stash_bytes(const Context& context, const std::vector<LayerId>& layers,
                           int64_t input_bytes) {
  int64_t bytes = 0;
  for (const LayerId id : layers)
    bytes = saturating_add(bytes, context.layers[id.index()].stash_bytes);
  // What layers save of their inputs is not known.
  if (context.layers.front().counted_by.empty()) return bytes;
  const int64_t saved = saturating_add(bytes, received_stash_bytes(context, layers));
  return std::max<int64_t>(saved - input_bytes, 0);
}

StageMemory stage_memory(const Context& context, const std::vector<LayerId>& layers,
                         int64_t input_bytes, int64_t output_bytes, bool recompute) {
  StageMemory memory{
      .sums = {}, .input_bytes = input_bytes, .output_bytes = output_bytes, .recompute = recompute};
  for (const LayerId id : layers) memory.sums.add(context.layers[id.index()]);
  // A stage that recomputes keeps what enters it.
  if (!recompute)
    memory.sums.stash_bytes =
        saturating_add(memory.sums.stash_bytes, received_stash_bytes(context, layers));
  memory.working_bytes = working_bytes(context, layers, saturating_add(input_bytes, output_bytes));
  return memory;
}

std::vector<StageMemory> stage_memories(const Context& context, const Split& split,
                                        const std::vector<int64_t>& cut_bytes) {
  std::vector<StageMemory> memories;
  for (size_t s = 0; s < split.stages.size(); ++s) {
    memories.push_back(stage_memory(context, split.stages[s], s == 0 ? 0 : cut_bytes[s - 1],
                                    s < cut_bytes.size() ? cut_bytes[s] : 0, split.recompute[s]));
  }
  return memories;
}

}  // namespace penstock::planner
