#include "penstock/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "penstock/planner/dp_partitioner.h"
#include "penstock/planner/notes.h"
#include "penstock/planner/pricing.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/units.h"

namespace penstock::planner {

using plan::Plan;
using schedule::Kind;
using schedule::WeightPolicy;

namespace {

/// What to look for: a schedule kind and the splits that count as its own.
struct Family {
  Kind kind = Kind::OneFOneB;
  WeightPolicy policy = WeightPolicy::Stash;
  bool straight = false;
  bool may_be_single_stage = false;
};

bool is_single_stage(Kind kind) { return kind == Kind::Serial || kind == Kind::DataParallel; }
bool is_straight(Kind kind) { return kind == Kind::ModelParallel || kind == Kind::GPipe; }

void check_supports(Kind kind, WeightPolicy policy) {
  if (supports(kind, policy)) return;
  throw ConfigError(fmt::format("strategy {} cannot run with weights {}; its default is {}", to_string(kind), to_string(policy),
                                to_string(default_policy(kind))));
}

Kind parse_strategy(const std::string& name) {
  if (name != "forward-only") {
    for (const Kind kind : schedule::all_kinds()) {
      if (to_string(kind) == name) return kind;
    }
  }
  throw ConfigError(
      fmt::format("unknown strategy '{}'; expected auto, serial, dp, mp, gpipe, 1f1b, 1f1b-flush or 2bw", name.substr(0, 40)));
}

// The pipeline kind whose schedule can keep weights that way.
Kind pipeline_kind(const std::string& weights) {
  if (weights.empty()) return Kind::OneFOneB;
  const WeightPolicy policy = schedule::parse_weight_policy(weights);
  if (policy == WeightPolicy::Flush) return Kind::OneFOneBFlush;
  return policy == WeightPolicy::TwoBuffered ? Kind::TwoBuffered : Kind::OneFOneB;
}

Family requested_family(const PlanOptions& options) {
  const bool automatic = options.strategy == "auto";
  Family family;
  family.kind = automatic ? pipeline_kind(options.weights) : parse_strategy(options.strategy);
  family.policy = options.weights.empty() ? default_policy(family.kind) : schedule::parse_weight_policy(options.weights);
  check_supports(family.kind, family.policy);
  if (options.straight && is_single_stage(family.kind)) {
    throw ConfigError(fmt::format("straight asks for one worker per stage; strategy {} has a single stage", options.strategy));
  }
  family.straight = options.straight || is_straight(family.kind);
  family.may_be_single_stage = automatic;
  return family;
}

// A single stage is not a pipeline: it runs as plain data parallelism or serially, where the policy allows.
void name_single_stage(Split& split) {
  if (split.stages.size() > 1) return;
  const Kind kind = split.replicas[0] == 1 ? Kind::Serial : Kind::DataParallel;
  if (split.policy != default_policy(split.kind)) return;
  split.kind = kind;
  split.policy = default_policy(kind);
}

PartitionProblem problem_of(const Context& context, const CutStates& states, const Family& family) {
  int64_t micro_batches = context.options.micro_batches;
  if (micro_batches == 0 && is_straight(family.kind)) {
    const std::vector<int> ones(static_cast<size_t>(std::min(context.workers, states.num_layers())), 1);
    micro_batches = chosen_micro_batches(family.kind, ones);
  }
  return {.states = states,
          .model = *context.model,
          .memory = {.kind = family.kind,
                     .policy = family.policy,
                     .limit_bytes = context.memory_limit_bytes,
                     .micro_batches = micro_batches,
                     .max_workers = context.workers},
          .workers = context.workers,
          .straight = family.straight,
          .at_least_two_stages = !family.may_be_single_stage};
}

Split split_of(const Context& context, const CutStates& states, const Family& family, const Partition& partition) {
  Split split{family.kind, family.policy, {}, partition.replicas};
  int begin = 0;
  for (const int end : partition.ends) {
    split.stages.emplace_back();
    for (int l = 0; l < context.profile.graph.num_layers(); ++l) {
      if (states.contains(end, LayerId{l}) && !states.contains(begin, LayerId{l})) split.stages.back().push_back(LayerId{l});
    }
    begin = end;
  }
  return split;
}

Split single_stage(const Context& context, const Family& family) {
  Split split{
      family.kind, family.policy, {std::vector<LayerId>(context.layers.size())}, {family.kind == Kind::Serial ? 1 : context.workers}};
  for (size_t l = 0; l < context.layers.size(); ++l) split.stages[0][l] = LayerId{static_cast<int32_t>(l)};
  return split;
}

// Names the stage that needs the most and, in it, the layer that needs the most.
std::string binding_place(const Context& context, const std::vector<std::vector<LayerId>>& stages,
                          const std::vector<int64_t>& stage_bytes) {
  const auto s = static_cast<size_t>(std::max_element(stage_bytes.begin(), stage_bytes.end()) - stage_bytes.begin());
  const auto bytes_of = [&](LayerId layer) {
    return context.layers[layer.index()].weight_bytes + context.layers[layer.index()].stash_bytes;
  };
  const LayerId layer =
      *std::max_element(stages[s].begin(), stages[s].end(), [&](LayerId a, LayerId b) { return bytes_of(a) < bytes_of(b); });
  return fmt::format("stage {} needs the most, in it layer '{}' ({} of weights, {} of activations per micro-batch)", s,
                     context.profile.graph.layer(layer).name, format_bytes(context.layers[layer.index()].weight_bytes),
                     format_bytes(context.layers[layer.index()].stash_bytes));
}

std::string does_not_fit(const Context& context, const Family& family, const std::string& least) {
  return fmt::format("no {} plan for {} workers fits into {} per worker{}{}", to_string(family.kind), context.workers,
                     format_bytes(context.memory_limit_bytes), least.empty() ? "" : ": ", least);
}

std::string partition_reason(const Context& context, const CutStates& states, const Family& family, const PartitionProblem& problem) {
  const auto least = least_memory(problem);
  if (!least) return does_not_fit(context, family, "it would need more than 2^63 bytes");
  const Split split = split_of(context, states, family, least->partition);
  std::vector<int64_t> stage_bytes;
  int workers_from_here = least->partition.num_workers();
  int begin = 0;
  for (size_t k = 0; k < split.stages.size(); ++k) {
    const int end = least->partition.ends[k];
    stage_bytes.push_back(problem.memory.stage_bytes(states.between(begin, end), split.replicas[k], workers_from_here));
    workers_from_here -= split.replicas[k];
    begin = end;
  }
  std::string config;
  for (const int count : split.replicas) config += fmt::format("{}{}", config.empty() ? "" : "-", count);
  return does_not_fit(context, family,
                      fmt::format("the least that would do is {} ({} bytes, split {}); {}", format_bytes(least->bytes), least->bytes,
                                  config, binding_place(context, split.stages, stage_bytes)));
}

// The least of the search is a bound made before the other stages are known; the plan's own peaks have the last word.
std::string over_limit(const Context& context, const Family& family, const Split& split, const Plan& plan) {
  if (context.memory_limit_bytes == 0) return "";
  std::vector<int64_t> stage_bytes;
  for (const plan::Stage& stage : plan.stages) stage_bytes.push_back(stage.memory_bytes);
  const int64_t most = *std::max_element(stage_bytes.begin(), stage_bytes.end());
  if (most <= context.memory_limit_bytes) return "";
  return does_not_fit(context, family,
                      fmt::format("split {} needs {} ({} bytes); {}", plan.config(), format_bytes(most), most,
                                  binding_place(context, split.stages, stage_bytes)));
}

enum class Reason { Full, Short };

PlanResult plan_family(const Context& context, const CutStates& states, const Family& family, Reason reason_wanted) {
  Split split;
  if (is_single_stage(family.kind)) {
    split = single_stage(context, family);
  } else {
    const PartitionProblem problem = problem_of(context, states, family);
    const auto partition = best_partition(problem);
    if (!partition) {
      // Finding the memory that would do takes as long as planning; alternatives do without it.
      if (reason_wanted == Reason::Short) return {std::nullopt, does_not_fit(context, family, "")};
      return {std::nullopt, partition_reason(context, states, family, problem)};
    }
    split = split_of(context, states, family, *partition);
    if (family.may_be_single_stage) name_single_stage(split);
  }
  Plan plan = price(context, split);
  std::string reason = over_limit(context, family, split, plan);
  if (!reason.empty()) return {std::nullopt, std::move(reason)};
  return {std::move(plan), ""};
}

// The partitioner's optimum is that of the cost model, which knows no stalls: a pipeline whose messages or synchronisations do not fit
// between computations may run slower than a simpler plan. Where the simulator says so clearly, "auto" takes the simpler one.
Plan confirmed(const Context& context, const CutStates& states, Plan plan) {
  constexpr double kClearly = 1.02;
  std::optional<Plan> better;
  const auto offer = [&](const Family& family) {
    PlanResult result = plan_family(context, states, family, Reason::Short);
    if (!result.plan) return;
    const double to_beat = better ? better->throughput_samples_per_s : kClearly * plan.throughput_samples_per_s;
    if (result.plan->throughput_samples_per_s > to_beat) better = std::move(result.plan);
  };
  offer({Kind::Serial, WeightPolicy::Flush, false, false});
  offer({Kind::DataParallel, WeightPolicy::Flush, false, false});
  offer({Kind::OneFOneB, WeightPolicy::Stash, true, false});
  if (!better) return plan;
  better->notes.push_back(
      fmt::format("The partitioner's optimum was {} {} ({} for its slowest part); simulated, this plan is {:.2f}x as fast.", plan.strategy,
                  short_config(plan), format_duration(plan.bottleneck_ns),
                  better->throughput_samples_per_s / std::max(plan.throughput_samples_per_s, 1e-300)));
  return *std::move(better);
}

bool may_be_replaced(const PlanOptions& options, const Plan& plan) {
  return options.strategy == "auto" && options.cost_model == "penstock" && options.weights.empty() && !options.straight &&
         plan.stages.size() > 1;
}

void add_alternatives(const Context& context, const CutStates& states, Plan& plan) {
  std::vector<Plan> others;
  std::vector<std::string> misfits;
  for (const Kind kind : {Kind::Serial, Kind::DataParallel, Kind::ModelParallel, Kind::GPipe, Kind::OneFOneB, Kind::OneFOneBFlush}) {
    if (to_string(kind) == plan.strategy) {
      others.push_back(plan);
      continue;
    }
    PlanResult result = plan_family(context, states, {kind, default_policy(kind), is_straight(kind), false}, Reason::Short);
    if (result.plan) {
      others.push_back(std::move(*result.plan));
    } else {
      misfits.push_back(fmt::format("Left out: {}.", result.reason));
    }
  }
  for (const Plan& other : others) plan.alternatives.push_back({other.strategy, other.config(), other.throughput_samples_per_s});
  for (std::string& note : notes_on_alternatives(plan, others)) plan.notes.push_back(std::move(note));
  for (std::string& note : misfits) plan.notes.push_back(std::move(note));
}

}  // namespace

PlanResult make_plan(const profile::Profile& profile, const cluster::Cluster& cluster, const PlanOptions& options) {
  const Context context(profile, cluster, options);
  const Family family = requested_family(options);
  const CutStates states(profile.graph, context.layers);
  PlanResult result = plan_family(context, states, family, Reason::Full);
  if (!result.plan) return result;
  if (may_be_replaced(options, *result.plan)) result.plan = confirmed(context, states, *std::move(result.plan));
  for (std::string& note : notes_on_plan(context, *result.plan)) result.plan->notes.push_back(std::move(note));
  add_alternatives(context, states, *result.plan);
  return result;
}

Plan price_plan(const profile::Profile& profile, const cluster::Cluster& cluster, const std::vector<std::vector<std::string>>& stages,
                const std::vector<int>& replicas, const PlanOptions& options) {
  const Context context(profile, cluster, options);
  if (stages.empty()) throw ConfigError("expected at least one stage, found none");
  if (stages.size() != replicas.size())
    throw ConfigError(fmt::format("found {} stages but {} replica counts", stages.size(), replicas.size()));
  int64_t workers = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].empty()) throw ConfigError(fmt::format("stage {} has no layers", s));
    if (replicas[s] < 1) throw ConfigError(fmt::format("stage {} has {} replicas; expected at least 1", s, replicas[s]));
    workers += replicas[s];
  }
  if (workers > context.workers) throw ConfigError(fmt::format("the split needs {} workers, the cluster has {}", workers, context.workers));

  Plan named;
  for (const auto& layers : stages) named.stages.push_back({.layers = layers});
  const std::vector<StageId> stage_of_layer = plan::stage_of_layer(named, profile.graph);
  const Family family = requested_family(options);
  Split split{family.kind, family.policy, std::vector<std::vector<LayerId>>(stages.size()), replicas};
  for (size_t l = 0; l < stage_of_layer.size(); ++l) split.stages[stage_of_layer[l].index()].push_back(LayerId{static_cast<int32_t>(l)});
  if (family.may_be_single_stage) name_single_stage(split);

  Plan plan = price(context, split);
  for (std::string& note : notes_on_plan(context, plan)) plan.notes.push_back(std::move(note));
  const std::string misfit = over_limit(context, family, split, plan);
  if (!misfit.empty()) plan.notes.push_back("Warning: " + misfit + ".");
  return plan;
}

}  // namespace penstock::planner
