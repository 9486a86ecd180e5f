#include "penstock/planner/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/planner/any_boundary.h"
#include "penstock/planner/any_sync.h"
#include "penstock/planner/families/auto_choice.h"
#include "penstock/planner/families/chunks.h"
#include "penstock/planner/families/families.h"
#include "penstock/planner/families/notes.h"
#include "penstock/planner/families/reasons.h"
#include "penstock/planner/team_search.h"
#include "penstock/schedule/generate.h"
#include "penstock/simulate/expected_interval.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

using plan::Plan;
using plan::Strategy;
using plan::WeightPolicy;

namespace {

void check_supports(Strategy strategy, WeightPolicy policy) {
  if (supports(strategy, policy)) return;
  throw ConfigError(fmt::format("strategy {} cannot run with weights {}; its default is {}",
                                to_string(strategy), to_string(policy),
                                to_string(default_policy(strategy))));
}

// The pipeline whose schedule can keep weights that way.
Strategy pipeline_with(std::optional<WeightPolicy> policy) {
  if (!policy) return Strategy::OneFOneB;
  for (const Strategy strategy : {Strategy::OneFOneBFlush, Strategy::TwoBuffered}) {
    if (supports(strategy, *policy)) return strategy;
  }
  return Strategy::OneFOneB;
}

// Options that only some strategies have.
void check_schedule_options(const PlanOptions& options) {
  plan::check_schedule_options(options.strategy, options.chunks, options.slack, options.keep);
}

Family requested_family(const PlanOptions& options) {
  Family family;
  family.strategy = options.strategy.value_or(pipeline_with(options.weights));
  family.policy = options.weights.value_or(default_policy(family.strategy));
  check_supports(family.strategy, family.policy);
  const std::string refusal = compensation_refusal(options.compensation, family.policy);
  if (!refusal.empty()) throw ConfigError(refusal);
  const plan::StrategyTraits& row = traits(family.strategy);
  if (!row.trains) throw ConfigError(fmt::format("strategy {} does not train", row.name));
  if (options.straight && row.extent != plan::Extent::Pipeline) {
    throw ConfigError(fmt::format(
        "straight means one worker per stage; strategy {} has a single stage", row.name));
  }
  family.straight = options.straight || row.one_worker_per_stage;
  if (traits(family.strategy).takes_slack) family.slack = options.slack.value_or(0);
  family.may_be_single_stage = !options.strategy;
  return family;
}

// A hint for those whose weight stashes are too large: the same pipeline with a flush keeps one
// version.
std::string flushed_hint(Families& families, const PlanOptions& options) {
  if (options.strategy || options.weights || !families.standard(Strategy::OneFOneBFlush).plan)
    return "";
  return "; a plan with the strategy 1f1b-flush, which keeps one version of the weights, would fit";
}

void throw_if_ended(const PlanResult& result) {
  if (result.reason == kNotInTime) throw OutOfTime();
  if (result.reason == kNotInMemory) throw OutOfMemory();
}

// Hybrid parallelism has no schedule of its own.
PlanResult hybrid_plan(Families& families, const PlanOptions& options) {
  if (options.straight)
    throw ConfigError(
        "straight means one worker per stage; strategy hybrid replicates its first stage");
  if (options.weights.value_or(WeightPolicy::Flush) != WeightPolicy::Flush) {
    throw ConfigError(
        fmt::format("strategy hybrid cannot run with weights {}; its default is flush",
                    to_string(*options.weights)));
  }
  const std::string refusal = compensation_refusal(options.compensation, WeightPolicy::Flush);
  if (!refusal.empty()) throw ConfigError(refusal);
  PlanResult result = families.standard(Strategy::Hybrid);
  throw_if_ended(result);
  if (result.plan)
    result.plan->explanation.notes.push_back(
        "Hybrid parallelism: its schedule is 1f1b-flush with one micro-batch per replica and "
        "step.");
  return result;
}

PlanResult requested_plan(Families& families, const PlanOptions& options) {
  if (options.strategy == Strategy::Hybrid) return hybrid_plan(families, options);
  const Family family = requested_family(options);
  if (options.strategy && traits(*options.strategy).split_by_simulation) {
    PlanResult result = families.standard(*options.strategy);
    throw_if_ended(result);
    // Workers with one stage: the minimum required is known.
    if (!result.plan && families.limited() && !traits(*options.strategy).is_chunked()) {
      PlanResult known = families.plan(family, true);
      if (!known.plan) result.reason = std::move(known.reason);
    }
    return result;
  }
  PlanResult result = families.plan(family, true);
  if (!result.plan) result.reason += flushed_hint(families, options);
  if (options.strategy && options.cost_model == "penstock" &&
      family.policy == default_policy(family.strategy) && !options.straight) {
    // What stands for the strategy in the tables may run faster than the optimum.
    const PlanResult& usual = families.standard(family.strategy);
    const bool faster =
        usual.plan &&
        (!result.plan || usual.plan->prediction.throughput_samples_per_s >
                             kFaster * result.plan->prediction.throughput_samples_per_s);
    return faster ? usual : result;
  }
  if (options.strategy || !families.may_hide_sums()) return result;
  // The search takes for hidden what computation could hide of the sums at best.
  Family counting = family;
  counting.counts_sums = true;
  PlanResult other;
  try {
    other = families.plan(counting, false);
  } catch (const SearchEnded&) {
    if (!result.plan) throw;
    return result;
  }
  const bool faster =
      other.plan &&
      (!result.plan || other.plan->prediction.throughput_samples_per_s >
                           kFaster * result.plan->prediction.throughput_samples_per_s);
  return faster ? other : result;
}

void set_interval(Plan& plan) {
  const auto interval = simulate::expected_interval(plan, plan.prediction.throughput_samples_per_s);
  if (!interval) return;
  plan.prediction.throughput_low_samples_per_s = interval->low;
  plan.prediction.throughput_high_samples_per_s = interval->high;
}

Split split_by_hand(const Context& context, const std::vector<plan::Stage>& stages,
                    const std::vector<int>& worker_of_replica) {
  if (stages.empty()) throw ConfigError("expected at least one stage, found none");
  int64_t workers = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].layers.empty()) throw ConfigError(fmt::format("stage {} has no layers", s));
    if (stages[s].replicas < 1)
      throw ConfigError(
          fmt::format("stage {} has {} replicas; expected at least 1", s, stages[s].replicas));
    workers += stages[s].replicas;
  }
  if (!worker_of_replica.empty())
    workers = int64_t{*std::max_element(worker_of_replica.begin(), worker_of_replica.end())} + 1;
  if (workers > context.workers)
    throw ConfigError(
        fmt::format("the split needs {} workers, the cluster has {}", workers, context.workers));

  Plan named;
  named.cluster = context.cluster;
  named.worker_of_replica = worker_of_replica;
  for (const plan::Stage& stage : stages) {
    named.stages.push_back(
        {.layers = stage.layers, .replicas = stage.replicas, .first_worker = stage.first_worker});
  }
  plan::validate(named);
  const std::vector<StageId> stage_of_layer = plan::stage_of_layer(named, context.profile.graph);
  Split split;
  split.worker_of_replica = worker_of_replica;
  split.stages.resize(stages.size());
  for (size_t l = 0; l < stage_of_layer.size(); ++l)
    split.stages[stage_of_layer[l].index()].push_back(LayerId{static_cast<int32_t>(l)});
  int next_worker = 0;
  for (const plan::Stage& stage : stages) {
    split.places.push_back(
        {stage.first_worker >= 0 && worker_of_replica.empty() ? stage.first_worker : next_worker,
         stage.replicas});
    split.recompute.push_back(stage.recompute);
    split.shard_optimizer.push_back(stage.shard_optimizer);
    split.offload.push_back(stage.offload);
    split.keep.push_back(stage.keep);
    next_worker += stage.replicas;
  }
  return split;
}

// Of the time that is left; the rest is for pricing what was found.
constexpr double kShareOfSearching = 0.85;

// Numbers that only some strategies have, given where the planner chose another one.
std::vector<std::string> unused_choices(const PlanOptions& options, Strategy chosen) {
  std::vector<std::string> notes;
  const auto add = [&](bool given, std::string_view number,
                       bool (*takes)(const plan::StrategyTraits&)) {
    if (!given || takes(traits(chosen))) return;
    notes.push_back(fmt::format("{} has no effect on {}: it is for {}.", number, to_string(chosen),
                                plan::names_of(plan::strategies_where(takes))));
  };
  add(options.chunks.has_value(), "chunks", [](const auto& row) { return row.takes_chunks(); });
  add(options.slack.has_value(), "slack", [](const auto& row) { return row.takes_slack; });
  add(options.keep.has_value(), "keep", [](const auto& row) { return row.takes_keep; });
  return notes;
}

std::string time_text(const PlanOptions& options) {
  return format_duration(std::chrono::nanoseconds(options.time_limit).count());
}

std::string memory_text(const PlanOptions& options) {
  return format_bytes(options.memory_budget_bytes);
}

std::string none_found(const std::string& within, std::string_view more) {
  return fmt::format("none was found within {}; that does not mean that there is none: {}", within,
                     more);
}

// The limits that the search met.
std::vector<std::string> notes_on_limits(const Context& context, const SplitFinder& finder) {
  std::vector<std::string> notes;
  if (finder.out_of_time() || context.time->is_over()) {
    notes.push_back(
        fmt::format("The search ended at its time limit, {}: a longer one may find a faster plan.",
                    time_text(context.options)));
  }
  if (finder.short_of_memory().empty()) return notes;
  const std::vector<Strategy> kinds(finder.short_of_memory().begin(),
                                    finder.short_of_memory().end());
  notes.push_back(fmt::format(
      "The search met its memory budget, {}, and was cut short for {}: a larger budget may find a "
      "faster plan.",
      memory_text(context.options), plan::names_of(kinds)));
  return notes;
}

PlanResult make_plan_in(const Context& context, SplitFinder& finder, bool keeps_to_flush);

PlanResult make_plan_within(const profile::Profile& profile, const cluster::Cluster& cluster,
                            PlanOptions options, TimeLimit time,
                            FoundPlans::Clock::time_point begin) {
  const bool keeps_to_flush =
      !options.strategy && !options.weights && !graph::tie_groups(profile.graph).empty();
  if (keeps_to_flush) options.weights = WeightPolicy::Flush;
  const auto compensated = traits(options.compensation).policies;
  if (!options.strategy && !options.weights && !compensated.empty())
    options.weights = compensated.front();
  // Copies of a whole pipeline: those of one stage are the ones that the search can make.
  if (!options.strategy && !options.straight && options.sync &&
      options.sync->sync == plan::GradientSync::DiLoCo)
    options.strategy = Strategy::DataParallel;
  check_schedule_options(options);
  const Context context(profile, cluster, options, time.share(kShareOfSearching), begin);
  try {
    SplitFinder finder(context);
    return make_plan_in(context, finder, keeps_to_flush);
  } catch (const OutOfMemory&) {
    return {std::nullopt, none_found("a memory budget of " + memory_text(options),
                                     "a larger one gives the search more memory")};
  } catch (const SearchEnded&) {
    return {std::nullopt,
            none_found(time_text(options), "a longer time limit gives the search more time")};
  }
}

PlanResult make_plan_in(const Context& context, SplitFinder& finder, bool keeps_to_flush) {
  const PlanOptions& options = context.options;
  Families families(context, finder);
  PlanResult result = may_be_replaced(context)
                          ? fastest_of_all(context, families, pipeline_with(options.weights),
                                           [&] { return requested_plan(families, options); })
                          : requested_plan(families, options);
  if (!result.plan) return result;
  context.found->close();
  result.improvements = context.found->take();
  Plan& plan = *result.plan;
  set_interval(plan);
  for (std::string& note : notes_on_plan(context, plan))
    plan.explanation.notes.push_back(std::move(note));
  for (std::string& note : unused_choices(options, plan.strategy))
    plan.explanation.notes.push_back(std::move(note));
  if (keeps_to_flush)
    plan.explanation.notes.push_back(
        "Layers share weights: only strategies that flush keep the copies equal.");
  for (std::string& note : notes_on_limits(context, finder))
    plan.explanation.notes.push_back(std::move(note));
  std::vector<FamilyRow> rows =
      families.rows(options.compare ? plan::training_strategies() : short_list(), plan);
  explain_rows(context, families, plan, rows);
  for (std::string& note : notes_on_rows(plan, rows))
    plan.explanation.notes.push_back(std::move(note));
  for (FamilyRow& row : rows) {
    if (options.compare || row.entry.throughput_samples_per_s > 0)
      plan.explanation.alternatives.push_back(std::move(row.entry));
  }
  return result;
}

}  // namespace

namespace {

PlanResult plan_of_whole_stages(const profile::Profile& profile, const cluster::Cluster& cluster,
                                const PlanOptions& options, TimeLimit time,
                                FoundPlans::Clock::time_point begin) {
  if (options.sync) return make_plan_within(profile, cluster, options, time, begin);
  return plan_with_any_sync(
      cluster, options, time,
      {.search =
           [&](const PlanOptions& with_sync, TimeLimit share) {
             return make_plan_within(profile, cluster, with_sync, share, begin);
           },
       .price =
           [&](const Plan& plan) {
             return reprice(plan, profile, cluster, options.cost_model, options.global_norm);
           }});
}

// Data parallelism as the papers price it, beside what is predicted here.
void add_published_baseline(const profile::Profile& profile, const cluster::Cluster& cluster,
                            PlanOptions options, Plan& plan) {
  const int workers = cluster.num_workers();
  if (!options.compare || options.cost_model != "penstock" || workers < 2) return;
  options.cost_model = "sosp2019";
  options.strategy = Strategy::DataParallel;
  options.weights.reset();
  options.straight = false;
  options.micro_batches.reset();
  options.chunks.reset();
  options.slack.reset();
  options.keep.reset();
  plan::Stage all{.layers = {}, .replicas = workers, .first_worker = 0};
  for (const graph::LayerNode& layer : profile.graph.layers()) all.layers.push_back(layer.name);
  const Plan published = price_plan(profile, cluster, std::vector<plan::Stage>{all}, options);
  const double samples_per_s =
      static_cast<double>(published.micro_batch_size) * 1e9 /
      static_cast<double>(std::max<int64_t>(published.prediction.bottleneck_ns, 1));
  plan.explanation.notes.push_back(fmt::format(
      "By PipeDream's own formula (SOSP 2019, section 3.1) data parallelism over {} workers makes "
      "{} samples/s: gains against that one are not gains against dp above.",
      workers, format_rate(samples_per_s)));
}

}  // namespace

PlanResult make_plan(const profile::Profile& profile, const cluster::Cluster& cluster,
                     const PlanOptions& options) {
  const auto begin = FoundPlans::Clock::now();
  const auto whole = [&](const profile::Profile& of, const cluster::Cluster& on,
                         const PlanOptions& asked, TimeLimit time) {
    if (asked.boundary) return plan_of_whole_stages(of, on, asked, time, begin);
    return plan_with_any_boundary(asked, time,
                                  {.search =
                                       [&](const PlanOptions& coded, TimeLimit share) {
                                         return plan_of_whole_stages(of, on, coded, share, begin);
                                       },
                                   .price =
                                       [&](const Plan& plan) {
                                         return reprice(plan, of, on, asked.cost_model,
                                                        asked.global_norm);
                                       }});
  };
  PlanResult result = options.tensor == 1
                          ? whole(profile, cluster, options, TimeLimit(options.time_limit))
                          : plan_with_teams(profile, cluster, options, whole);
  if (!result.plan) return result;
  if (!result.plan->teams().empty()) set_interval(*result.plan);
  add_published_baseline(profile, cluster, options, *result.plan);
  if (profile.lengths.size() > 1) {
    result.plan->explanation.notes.push_back(fmt::format(
        "Lengths: micro-batches have sequences of {}. Times are means over these; memory is that "
        "of the longest.",
        profile::lengths_text(profile.lengths)));
  }
  result.searched = FoundPlans::Clock::now() - begin;
  return result;
}

int64_t usual_micro_batches(Strategy strategy, int workers) {
  if (traits(strategy).extent == plan::Extent::OneStage)
    return chosen_micro_batches(strategy, {workers});
  return chosen_micro_batches(strategy, std::vector<int>(static_cast<size_t>(workers), 1));
}

Plan price_plan(const profile::Profile& profile, const cluster::Cluster& cluster,
                const std::vector<plan::Stage>& stages, const PlanOptions& options) {
  return price_placed_plan(profile, cluster, stages, {}, options);
}

namespace {

bool has_teams(const std::vector<plan::Stage>& stages) {
  return std::any_of(stages.begin(), stages.end(),
                     [](const plan::Stage& stage) { return stage.tensor != 1; });
}

Plan price_teams(const profile::Profile& profile, const cluster::Cluster& cluster,
                 std::vector<plan::Stage> stages, const std::vector<int>& worker_of_replica,
                 const PlanOptions& options) {
  const Family family = requested_family(options);
  if (options.keep) {
    for (plan::Stage& stage : stages) stage.keep = *options.keep;
  }
  TeamPricer pricer(profile, cluster, options);
  Plan plan = pricer.price({.strategy = family.strategy,
                            .policy = family.policy,
                            .slack = family.slack,
                            .stages = std::move(stages),
                            .worker_of_replica = worker_of_replica});
  set_interval(plan);
  if (!pricer.fits(plan))
    plan.explanation.notes.push_back("Warning: a worker has less memory than the plan needs.");
  return plan;
}

}  // namespace

Plan price_placed_plan(const profile::Profile& profile, const cluster::Cluster& cluster,
                       const std::vector<plan::Stage>& stages,
                       const std::vector<int>& worker_of_replica, const PlanOptions& options) {
  if (has_teams(stages)) return price_teams(profile, cluster, stages, worker_of_replica, options);
  const Context context(profile, cluster, options);
  Split split = split_by_hand(context, stages, worker_of_replica);
  const Family family = requested_family(options);
  split.strategy = family.strategy;
  split.policy = family.policy;
  split.slack = family.slack;
  if (options.keep) split.keep.assign(split.stages.size(), *options.keep);
  if (family.may_be_single_stage) name_single_stage(split);
  Plan plan = price(context, split);
  set_interval(plan);
  for (std::string& note : notes_on_plan(context, plan))
    plan.explanation.notes.push_back(std::move(note));
  const std::string misfit = over_limit(context, split, plan);
  if (!misfit.empty()) plan.explanation.notes.push_back("Warning: " + misfit + ".");
  return plan;
}

Plan price_plan(const profile::Profile& profile, const cluster::Cluster& cluster,
                const std::vector<std::vector<std::string>>& stages,
                const std::vector<int>& replicas, const PlanOptions& options) {
  if (stages.size() != replicas.size())
    throw ConfigError(
        fmt::format("found {} stages but {} replica counts", stages.size(), replicas.size()));
  std::vector<plan::Stage> split;
  for (size_t s = 0; s < stages.size(); ++s)
    split.push_back({.layers = stages[s], .replicas = replicas[s]});
  return price_plan(profile, cluster, split, options);
}

Plan reprice(const Plan& plan, const profile::Profile& profile, const cluster::Cluster& cluster,
             const std::string& cost_model, bool global_norm) {
  PlanOptions options;
  options.global_norm = global_norm;
  options.strategy = plan.strategy;
  options.weights = plan.weights;
  options.compensation = plan.compensation;
  options.cost_model = cost_model;
  options.sync = plan.sync_method();
  options.gradient_precision = plan.gradient_precision;
  options.given_boundaries = plan.links;
  options.micro_batches = plan.micro_batches;
  options.optimizer_state_per_weight = plan.optimizer_state_per_weight;
  if (plan.slack > 0) options.slack = plan.slack;
  Plan priced = price_placed_plan(profile, cluster, plan.stages, plan.worker_of_replica, options);
  if (!plan.explanation.cost_model.empty() && plan.explanation.cost_model != cost_model) {
    priced.explanation.notes.push_back(fmt::format(
        "Found under the cost model {} ({} for its slowest part there), priced under {}.",
        plan.explanation.cost_model, format_duration(plan.prediction.bottleneck_ns), cost_model));
  }
  return priced;
}

}  // namespace penstock::planner
