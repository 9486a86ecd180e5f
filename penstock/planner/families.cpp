#include "penstock/planner/families.h"

#include <algorithm>

#include "penstock/planner/hybrid.h"
#include "penstock/planner/interleaved.h"
#include "penstock/planner/reasons.h"
#include "penstock/util/error.h"

namespace penstock::planner {

using plan::Plan;
using schedule::Kind;
using schedule::WeightPolicy;

namespace {

// Hybrid splits whose estimates are so close that the simulator decides.
constexpr size_t kSimulatedHybrids = 3;

Family family_of(Kind kind) {
  return {.kind = kind,
          .policy = default_policy(kind),
          .straight = kind == Kind::ModelParallel || kind == Kind::GPipe,
          .may_be_single_stage = false};
}

}  // namespace

PlanResult Families::plan(const Family& family, bool wants_least_memory) {
  const auto found = finder_.best(family);
  if (!found) {
    return {std::nullopt, wants_least_memory ? why_nothing_fits(context_, finder_, family) : does_not_fit(context_, family.kind)};
  }
  Plan plan = price(context_, found->split, found->micro_batches);
  plan.optimality_gap = found->optimality_gap;
  std::string reason = over_limit(context_, found->split, plan);
  if (!reason.empty()) return {std::nullopt, std::move(reason)};
  return {std::move(plan), ""};
}

const PlanResult& Families::standard(const std::string& strategy) {
  const auto [entry, is_new] = standard_.try_emplace(strategy);
  if (is_new) {
    try {
      entry->second = make(strategy);
    } catch (const ConfigError& error) {
      entry->second = {std::nullopt, error.what()};
    }
  }
  return entry->second;
}

PlanResult Families::make(const std::string& strategy) {
  if (strategy == "hybrid") return hybrid();
  const Kind kind = schedule::parse_kind(strategy);
  PlanResult result = plan(family_of(kind), false);
  if (kind != Kind::OneFOneB || context_.model->name() != "penstock") return result;
  // The cost model knows no stalls: the best straight pipeline may run faster than the optimum.
  Family straight = family_of(kind);
  straight.straight = true;
  PlanResult other = plan(straight, false);
  const bool faster = other.plan && (!result.plan || other.plan->throughput_samples_per_s > result.plan->throughput_samples_per_s);
  return faster ? other : result;
}

PlanResult Families::hybrid() {
  PlanResult best{std::nullopt, "it takes at least two workers and two layers"};
  for (const Split& split : hybrid_splits(context_, kSimulatedHybrids)) {
    const int64_t micro_batches = context_.options.micro_batches > 0 ? context_.options.micro_batches : split.places[0].count;
    Plan plan = price(context_, split, micro_batches);
    std::string reason = over_limit(context_, split, plan);
    if (!reason.empty()) {
      if (!best.plan) best.reason = std::move(reason);
    } else if (!best.plan || plan.throughput_samples_per_s > best.plan->throughput_samples_per_s) {
      best = {std::move(plan), ""};
    }
  }
  return best;
}

std::vector<FamilyRow> Families::rows(const std::vector<std::string>& strategies, const Plan& winner) {
  std::vector<FamilyRow> rows;
  for (const std::string& strategy : strategies) rows.push_back(row(strategy, winner));
  return rows;
}

FamilyRow Families::row(const std::string& strategy, const Plan& winner) {
  if (strategy == winner.strategy) return {alternative_of(winner, strategy), true};
  FamilyRow missing{{.strategy = strategy, .config = ""}, false};
  if (strategy == "interleaved") {
    InterleavedResult result = interleaved(context_);
    if (result.best) return {*std::move(result.best), false};
    missing.entry.note = std::move(result.reason);
    return missing;
  }
  const PlanResult& result = standard(strategy);
  if (result.plan) return {alternative_of(*result.plan, strategy), true};
  missing.entry.note = result.reason;
  return missing;
}

const std::vector<std::string>& short_list() {
  static const std::vector<std::string> names{"serial", "dp", "mp", "gpipe", "1f1b", "1f1b-flush"};
  return names;
}

const std::vector<std::string>& all_families() {
  static const std::vector<std::string> names{"serial", "dp", "mp", "hybrid", "gpipe", "1f1b", "2bw", "1f1b-flush", "interleaved"};
  return names;
}

plan::Alternative alternative_of(const Plan& plan, const std::string& strategy) {
  plan::Alternative result{.strategy = strategy,
                           .config = plan.config(),
                           .throughput_samples_per_s = plan.throughput_samples_per_s,
                           .weights = plan.weights,
                           .micro_batches = plan.micro_batches,
                           .latency_ns = plan.latency_ns,
                           .memory_bytes = 0,
                           .idle_share = plan.idle_share,
                           .bytes_per_sample = plan.bytes_per_sample};
  for (const plan::Stage& stage : plan.stages) result.memory_bytes = std::max(result.memory_bytes, stage.memory_bytes);
  return result;
}

}  // namespace penstock::planner
