#include "penstock/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/planner/families.h"
#include "penstock/planner/notes.h"
#include "penstock/planner/reasons.h"
#include "penstock/util/error.h"
#include "penstock/util/units.h"

namespace penstock::planner {

using plan::Plan;
using schedule::Kind;
using schedule::WeightPolicy;

namespace {

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
      fmt::format("unknown strategy '{}'; expected auto, serial, dp, mp, hybrid, gpipe, 1f1b, 1f1b-flush or 2bw", name.substr(0, 40)));
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

// The partitioner's optimum is that of the cost model, which knows no stalls: a pipeline whose messages or synchronisations do not fit
// between computations may run slower than a simpler plan. Where the simulator says so, "auto" takes the faster one of those it may pick.
Plan confirmed(Families& families, Plan plan) {
  // Less than this comes from filling and draining: the families are equally fast, and the optimum stays.
  constexpr double kFaster = 1.005;
  const Plan* best = nullptr;
  for (const char* strategy : {"serial", "dp", "1f1b"}) {
    const PlanResult& other = families.standard(strategy);
    if (!other.plan || other.plan->throughput_samples_per_s <= kFaster * plan.throughput_samples_per_s) continue;
    if (best == nullptr || other.plan->throughput_samples_per_s > best->throughput_samples_per_s) best = &*other.plan;
  }
  if (best == nullptr) return plan;
  Plan better = *best;
  better.optimality_gap = plan.optimality_gap;
  better.notes.push_back(
      fmt::format("The partitioner's optimum was {} {} ({} for its slowest part); simulated, this plan is {:.2f}x as fast.", plan.strategy,
                  short_config(plan), format_duration(plan.bottleneck_ns),
                  better.throughput_samples_per_s / std::max(plan.throughput_samples_per_s, 1e-300)));
  return better;
}

bool may_be_replaced(const Context& context) {
  const PlanOptions& options = context.options;
  return options.strategy == "auto" && options.cost_model == "penstock" && options.weights.empty() && !options.straight &&
         !options.use_all_workers;
}

// A hint for those whose weight stashes are too large: the same pipeline with a flush keeps one version.
std::string flushed_hint(Families& families, const PlanOptions& options) {
  if (options.strategy != "auto" || !options.weights.empty() || !families.standard("1f1b-flush").plan) return "";
  return "; a plan with --strategy 1f1b-flush, which keeps one version of the weights, would fit";
}

// Hybrid parallelism has no schedule of its own.
PlanResult hybrid_plan(Families& families, const PlanOptions& options) {
  if (options.straight) throw ConfigError("straight asks for one worker per stage; strategy hybrid replicates its first stage");
  if (!options.weights.empty() && options.weights != "flush") {
    throw ConfigError(fmt::format("strategy hybrid cannot run with weights {}; its default is flush", options.weights.substr(0, 40)));
  }
  PlanResult result = families.standard("hybrid");
  if (result.plan)
    result.plan->notes.push_back("Hybrid parallelism: its schedule is 1f1b-flush with one micro-batch per replica and step.");
  return result;
}

PlanResult requested_plan(Families& families, const PlanOptions& options) {
  if (options.strategy == "hybrid") return hybrid_plan(families, options);
  if (options.strategy == "interleaved") {
    return {std::nullopt,
            "interleaved plans are only priced by formula, no schedule of them can be run yet; compare the families to see it"};
  }
  PlanResult result = families.plan(requested_family(options), true);
  if (!result.plan) result.reason += flushed_hint(families, options);
  return result;
}

Split split_by_hand(const Context& context, const std::vector<plan::Stage>& stages) {
  if (stages.empty()) throw ConfigError("expected at least one stage, found none");
  int64_t workers = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].layers.empty()) throw ConfigError(fmt::format("stage {} has no layers", s));
    if (stages[s].replicas < 1) throw ConfigError(fmt::format("stage {} has {} replicas; expected at least 1", s, stages[s].replicas));
    workers += stages[s].replicas;
  }
  if (workers > context.workers) throw ConfigError(fmt::format("the split needs {} workers, the cluster has {}", workers, context.workers));

  Plan named;
  named.cluster = context.cluster;
  for (const plan::Stage& stage : stages) {
    named.stages.push_back({.layers = stage.layers, .replicas = stage.replicas, .first_worker = stage.first_worker});
  }
  plan::validate(named);
  const std::vector<StageId> stage_of_layer = plan::stage_of_layer(named, context.profile.graph);
  Split split;
  split.stages.resize(stages.size());
  for (size_t l = 0; l < stage_of_layer.size(); ++l) split.stages[stage_of_layer[l].index()].push_back(LayerId{static_cast<int32_t>(l)});
  int next_worker = 0;
  for (const plan::Stage& stage : stages) {
    split.places.push_back({stage.first_worker >= 0 ? stage.first_worker : next_worker, stage.replicas});
    split.recompute.push_back(stage.recompute);
    next_worker += stage.replicas;
  }
  return split;
}

}  // namespace

PlanResult make_plan(const profile::Profile& profile, const cluster::Cluster& cluster, const PlanOptions& options) {
  const Context context(profile, cluster, options);
  SplitFinder finder(context);
  Families families(context, finder);
  PlanResult result = requested_plan(families, options);
  if (!result.plan) return result;
  if (may_be_replaced(context)) result.plan = confirmed(families, *std::move(result.plan));
  Plan& plan = *result.plan;
  for (std::string& note : notes_on_plan(context, plan)) plan.notes.push_back(std::move(note));
  std::vector<FamilyRow> rows = families.rows(options.compare ? all_families() : short_list(), plan);
  explain_rows(context, families, plan, rows);
  for (std::string& note : notes_on_rows(plan, rows, options.strategy == "auto")) plan.notes.push_back(std::move(note));
  for (FamilyRow& row : rows) {
    if (options.compare || row.entry.throughput_samples_per_s > 0) plan.alternatives.push_back(std::move(row.entry));
  }
  return result;
}

Plan price_plan(const profile::Profile& profile, const cluster::Cluster& cluster, const std::vector<plan::Stage>& stages,
                const PlanOptions& options) {
  const Context context(profile, cluster, options);
  Split split = split_by_hand(context, stages);
  const Family family = requested_family(options);
  split.kind = family.kind;
  split.policy = family.policy;
  if (family.may_be_single_stage) name_single_stage(split);
  Plan plan = price(context, split);
  for (std::string& note : notes_on_plan(context, plan)) plan.notes.push_back(std::move(note));
  const std::string misfit = over_limit(context, split, plan);
  if (!misfit.empty()) plan.notes.push_back("Warning: " + misfit + ".");
  return plan;
}

Plan price_plan(const profile::Profile& profile, const cluster::Cluster& cluster, const std::vector<std::vector<std::string>>& stages,
                const std::vector<int>& replicas, const PlanOptions& options) {
  if (stages.size() != replicas.size())
    throw ConfigError(fmt::format("found {} stages but {} replica counts", stages.size(), replicas.size()));
  std::vector<plan::Stage> split;
  for (size_t s = 0; s < stages.size(); ++s) split.push_back({.layers = stages[s], .replicas = replicas[s]});
  return price_plan(profile, cluster, split, options);
}

Plan reprice(const Plan& plan, const profile::Profile& profile, const cluster::Cluster& cluster, const std::string& cost_model) {
  PlanOptions options;
  options.strategy = plan.strategy;
  options.weights = plan.weights;
  options.cost_model = cost_model;
  options.sync = plan.sync;
  options.micro_batches = plan.micro_batches;
  options.optimizer_state_per_weight = plan.optimizer_state_per_weight;
  Plan priced = price_plan(profile, cluster, plan.stages, options);
  if (!plan.cost_model.empty() && plan.cost_model != cost_model) {
    priced.notes.push_back(fmt::format("Found under the cost model {} ({} for its slowest part there), priced under {}.", plan.cost_model,
                                       format_duration(plan.bottleneck_ns), cost_model));
  }
  return priced;
}

}  // namespace penstock::planner
