#include "penstock/planner/families/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "penstock/planner/families/chunks.h"
#include "penstock/planner/families/hybrid.h"
#include "penstock/planner/families/reasons.h"
#include "penstock/planner/families/trials.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/format_rate.h"

namespace penstock::planner {

using plan::Plan;
using plan::Strategy;

namespace {

// Found now.
PlanResult found_now(const Context& context, Plan plan) {
  context.found->note(plan.strategy, plan.prediction.throughput_samples_per_s);
  return {std::move(plan), "", context.found->now()};
}

// Hybrid splits whose estimates are so close that the simulator decides.
constexpr size_t kSimulatedHybrids = 3;

Family family_of(Strategy strategy) {
  return {.strategy = strategy,
          .policy = default_policy(strategy),
          .straight = traits(strategy).one_worker_per_stage,
          .may_be_single_stage = false};
}

}  // namespace

Families::Families(const Context& context, SplitFinder& finder)
    : context_(context), finder_(finder) {
  int64_t all_ns = 0;
  for (const PlannedLayer& layer : context.layers)
    all_ns = saturating_add(all_ns, layer.compute_ns);
  double fastest = 0;
  double together = 0;
  for (int worker = 0; worker < context.workers; ++worker) {
    const double speed = context.speed({worker, 1});
    fastest = std::max(fastest, speed);
    together += speed;
  }
  const auto samples = static_cast<double>(profile::samples_per_micro_batch(context.profile));
  one_worker_samples_per_s_ = samples * 1e9 * fastest / std::max(static_cast<double>(all_ns), 1.0);
  all_workers_samples_per_s_ = one_worker_samples_per_s_ / fastest * together;
}

// What passes need while they run is known of whole stages only: where that does not fit, the
// search has to leave so much more.
PlanResult Families::plan(Family family, bool wants_least_memory) {
  constexpr int kTries = 4;
  const Family asked = family;
  PlanResult first;
  bool fits_but_for_passes = false;
  for (int tries = 0; tries < kTries; ++tries) {
    int64_t excess = 0;
    PlanResult result = best_of(family, wants_least_memory && tries == 0, excess);
    if (tries == 0) first = result;
    if (result.plan) return result;
    fits_but_for_passes = fits_but_for_passes || excess > 0;
    const int64_t limit =
        family.memory_bytes > 0 ? family.memory_bytes : context_.limit_bytes({0, context_.workers});
    if (excess <= 0 || excess >= limit || context_.time->is_over()) break;
    family.memory_bytes = limit - excess;
  }
  const bool has_splits = traits(asked.strategy).extent == plan::Extent::Pipeline;
  if (has_splits && fits_but_for_passes && !context_.time->is_over()) {
    if (PlanResult least = of_least_memory(asked); least.plan) return least;
  }
  return first;
}

PlanResult Families::of_least_memory(const Family& family) {
  const auto least = finder_.least(family);
  if (!least) return {};
  const Tried found = tried(context_, {.split = least->split});
  if (!found.reason.empty()) return {};
  Plan plan = price(context_, found.candidate.split, found.candidate.micro_batches);
  if (!over_limit(context_, found.candidate.split, plan).empty()) return {};
  plan.explanation.optimality_gap =
      std::max(0.0, all_workers_samples_per_s_ / plan.prediction.throughput_samples_per_s - 1);
  return found_now(context_, std::move(plan));
}

PlanResult Families::best_of(const Family& family, bool wants_least_memory, int64_t& excess) {
  const int64_t cut_short_before = finder_.num_cut_short();
  std::vector<FoundSplit> splits = finder_.best_over_links(family);
  const bool cut_short = finder_.num_cut_short() > cut_short_before;
  if (splits.empty() && (cut_short || context_.time->is_over())) throw OutOfTime();
  if (splits.empty() && finder_.short_of_memory().count(family.strategy) > 0) throw OutOfMemory();
  if (splits.empty()) {
    return {std::nullopt, wants_least_memory ? why_nothing_fits(context_, finder_, family)
                                             : does_not_fit(context_, family.strategy)};
  }
  PlanResult best;
  for (const FoundSplit& found : promising_first(context_, std::move(splits), 1)) {
    if (best.plan && context_.time->is_over_by(kForPricing)) break;
    if (best.plan && most_samples_per_s(price_parts(context_, found.split, found.micro_batches)) <=
                         kFaster * best.plan->prediction.throughput_samples_per_s)
      continue;
    Plan plan = price(context_, found.split, found.micro_batches);
    plan.explanation.optimality_gap = found.optimality_gap;
    std::string reason = over_limit(context_, found.split, plan);
    if (best.plan &&
        (!reason.empty() || plan.prediction.throughput_samples_per_s <=
                                kFaster * best.plan->prediction.throughput_samples_per_s))
      continue;
    if (reason.empty()) {
      best = found_now(context_, std::move(plan));
      continue;
    }
    const int64_t beyond = beyond_limit(context_, found.split, plan);
    excess = excess == 0 ? beyond : std::min(excess, beyond);
    if (best.reason.empty()) best.reason = std::move(reason);
  }
  return best;
}

PlanResult Families::planned_beside(const Family& family, bool has_plan) {
  if (!has_plan) return plan(family, false);
  try {
    return plan(family, false);
  } catch (const OutOfMemory&) {
    finder_.note_short_of_memory(family.strategy);
  } catch (const OutOfTime&) {
  }
  return {};
}

PlanResult Families::made(Strategy strategy) {
  try {
    context_.time->check();
    return make(strategy);
  } catch (const ConfigError& error) {
    return {std::nullopt, error.what()};
  } catch (const OutOfMemory&) {
    finder_.note_short_of_memory(strategy);
    return {std::nullopt, std::string(kNotInMemory)};
  } catch (const OutOfTime&) {
    return {std::nullopt, std::string(kNotInTime)};
  }
}

const PlanResult& Families::standard(Strategy strategy) {
  const auto [entry, is_new] = standard_.try_emplace(strategy);
  if (is_new) entry->second = made(strategy);
  return entry->second;
}

const PlanResult& Families::renewed(Strategy strategy) {
  if (unfinished_.erase(strategy) == 0) return standard(strategy);
  PlanResult& kept = standard_.at(strategy);
  PlanResult again = made(strategy);
  if (!kept.plan || (again.plan && again.plan->prediction.throughput_samples_per_s >
                                       kept.plan->prediction.throughput_samples_per_s))
    kept = std::move(again);
  return kept;
}

PlanResult Families::best_synchronous(Strategy strategy, double faster_than) {
  Candidates found = synchronous_candidates(context_, finder_, strategy, faster_than);
  found.list = promising_first(context_, std::move(found.list));
  Trials& trials = trials_.try_emplace(strategy, context_).first->second;
  trials.begin(faster_than, std::move(found.reason));
  const auto offer = [&](const Candidate& candidate) { return trials.offer(candidate); };
  if (std::all_of(found.list.begin(), found.list.end(), offer)) {
    offer_lighter_candidates(
        context_, finder_, strategy, std::move(found.list), [&] { return trials.needed(); }, offer);
  }
  return trials.result();
}

PlanResult Families::faster(Strategy strategy, double samples_per_s) {
  const int64_t cut_short_before = finder_.num_cut_short();
  // The table that compares strategies has the plan of each anyway; it is not bound to straight
  // splits.
  const bool in_table = context_.options.compare && !context_.options.straight;
  PlanResult result;
  if (in_table || !traits(strategy).auto_may_choose) {
    result = renewed(strategy);
  } else {
    try {
      context_.time->check();
      result = best_synchronous(strategy, samples_per_s);
    } catch (const ConfigError&) {  // the user's steps suit no plan of the kind
    } catch (const OutOfMemory&) {  // nor what is not known within the memory
      finder_.note_short_of_memory(strategy);
    } catch (const OutOfTime&) {  // what is not known in time is not picked
    }
  }
  const auto trials = trials_.find(strategy);
  const bool trials_cut_short = trials != trials_.end() && trials->second.were_cut_short();
  was_cut_short_ = context_.time->exists() && (trials_cut_short || context_.time->is_over() ||
                                               finder_.num_cut_short() > cut_short_before);
  if (was_cut_short_ && standard_.contains(strategy)) unfinished_.insert(strategy);
  if (result.plan && result.plan->prediction.throughput_samples_per_s <= samples_per_s)
    result.plan.reset();
  return result;
}

PlanResult Families::data_parallel(int64_t micro_batches) {
  const auto found = finder_.best(family_of(Strategy::DataParallel));
  const int64_t replicas = found->split.places.front().count;
  const int64_t rounds = std::max<int64_t>(micro_batches / replicas, 1);
  Plan plan = price(context_, found->split, rounds * replicas);
  std::string reason = over_limit(context_, found->split, plan);
  if (!reason.empty()) return {std::nullopt, std::move(reason)};
  return found_now(context_, std::move(plan));
}

double Families::bound_samples_per_s(Strategy strategy) const {
  const plan::StrategyTraits& row = traits(strategy);
  const bool one_at_a_time = row.extent == plan::Extent::OneWorker || row.is_sequential();
  return one_at_a_time ? one_worker_samples_per_s_ : all_workers_samples_per_s_;
}

namespace {

// How long it takes to plan a kind, roughly: few searches for partitions, several, several and
// searches for orders.
int searches_of(const plan::StrategyTraits& row) {
  if (row.takes_keep) return 2;
  const bool is_replicated = !row.is_chunked() && !row.one_worker_per_stage;
  return is_replicated && (row.split_by_simulation || !row.flushes()) ? 1 : 0;
}

}  // namespace

std::vector<Strategy> Families::by_bound(std::span<const Strategy> strategies) const {
  std::vector<Strategy> sorted(strategies.begin(), strategies.end());
  std::ranges::stable_sort(sorted, std::greater(), [this](Strategy strategy) {
    return std::pair(bound_samples_per_s(strategy), -searches_of(traits(strategy)));
  });
  return sorted;
}

PlanResult Families::make(Strategy strategy) {
  if (strategy == Strategy::Hybrid) return hybrid();
  if (traits(strategy).split_by_simulation) return best_synchronous(strategy, 0);
  PlanResult result = plan(family_of(strategy), false);
  if (context_.model->name() != "penstock") return result;
  const auto try_other = [&](const Family& family) {
    if (context_.time->is_over() && result.plan) return;
    PlanResult other = planned_beside(family, result.plan.has_value());
    if (!other.plan || (result.plan && other.plan->prediction.throughput_samples_per_s <=
                                           result.plan->prediction.throughput_samples_per_s))
      return;
    if (result.plan)
      other.plan->explanation.optimality_gap =
          std::max(other.plan->explanation.optimality_gap, result.plan->explanation.optimality_gap);
    result = std::move(other);
  };
  const bool is_pipeline = strategy == Strategy::OneFOneB || strategy == Strategy::OneFOneBFlush;
  if (is_pipeline && context_.counting_model) {
    // The search takes for hidden what computation could hide at best.
    Family counting = family_of(strategy);
    counting.counts_sums = true;
    try_other(counting);
  }
  if (strategy == Strategy::OneFOneB) {
    // The cost model knows no stalls: the best straight pipeline may run faster than the optimum.
    Family straight = family_of(strategy);
    straight.straight = true;
    try_other(straight);
  }
  return result;
}

PlanResult Families::hybrid() {
  PlanResult best{std::nullopt, "it takes at least two workers and two layers"};
  for (const Split& split : hybrid_splits(context_, kSimulatedHybrids)) {
    const int64_t micro_batches = context_.options.micro_batches.value_or(split.places[0].count);
    Plan plan = price(context_, split, micro_batches);
    std::string reason = over_limit(context_, split, plan);
    if (!reason.empty()) {
      if (!best.plan) best.reason = std::move(reason);
    } else if (!best.plan || plan.prediction.throughput_samples_per_s >
                                 best.plan->prediction.throughput_samples_per_s) {
      best = found_now(context_, std::move(plan));
    }
  }
  return best;
}

std::vector<FamilyRow> Families::rows(std::span<const Strategy> strategies, const Plan& winner) {
  for (const Strategy strategy : by_bound(strategies)) {
    if (strategy != winner.strategy) standard(strategy);
  }
  std::vector<FamilyRow> rows;
  rows.reserve(strategies.size());
  for (const Strategy strategy : strategies) rows.push_back(row(strategy, winner));
  return rows;
}

FamilyRow Families::row(Strategy strategy, const Plan& winner) {
  if (strategy == winner.strategy) return {alternative_of(winner, strategy), true};
  FamilyRow missing{{.strategy = strategy, .config = ""}, false};
  const PlanResult& result = standard(strategy);
  if (result.plan) return {alternative_of(*result.plan, strategy), true};
  missing.entry.note = result.reason == kNotInTime ? why_missing(strategy, winner) : result.reason;
  return missing;
}

std::string Families::why_missing(Strategy strategy, const Plan& winner) const {
  const double bound = bound_samples_per_s(strategy);
  const std::string most = format_rate(bound);
  return bound <= kFaster * winner.prediction.throughput_samples_per_s
             ? fmt::format("cannot win: bound {} samples/s, its workers computing without a pause",
                           most)
             : fmt::format("{} (at most {} samples/s, its workers computing without a pause)",
                           kNotInTime, most);
}

std::span<const Strategy> synchronous_pipelines() {
  static const std::vector<Strategy> kAll =
      plan::strategies_where([](const plan::StrategyTraits& row) { return row.auto_may_choose; });
  return kAll;
}

std::span<const Strategy> short_list() {
  static const std::vector<Strategy> kAll =
      plan::strategies_where([](const plan::StrategyTraits& row) { return row.in_short_list; });
  return kAll;
}

plan::Alternative alternative_of(const Plan& plan, Strategy strategy) {
  plan::Alternative result{.strategy = strategy,
                           .config = plan.config(),
                           .throughput_samples_per_s = plan.prediction.throughput_samples_per_s,
                           .weights = plan.weights,
                           .micro_batches = plan.micro_batches,
                           .latency_ns = plan.prediction.latency_ns,
                           .memory_bytes = memory_bytes_of(plan),
                           .idle_share = plan.prediction.idle_share,
                           .bytes_per_sample = plan.prediction.bytes_per_sample};
  return result;
}

}  // namespace penstock::planner
