#include "penstock/planner/any_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "penstock/planner/cost/distinct_syncs.h"
#include "penstock/planner/families/families.h"
#include "penstock/util/text/format_rate.h"

namespace penstock::planner {

using plan::GradientSync;
using plan::Plan;

namespace {

bool is_faster(double samples_per_s, double than_samples_per_s) {
  return samples_per_s > kFaster * than_samples_per_s;
}

bool adds_between_ranks(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const plan::Stage& stage) { return !stage.buckets.empty(); });
}

/// Of searches one after the other: what the next one found that was faster than all before.
void add_improvements(std::vector<FoundPlan>& all, const std::vector<FoundPlan>& next) {
  for (const FoundPlan& found : next) {
    if (all.empty() || found.samples_per_s > all.back().samples_per_s) all.push_back(found);
  }
}

/// The families of a plan that is not taken, where they are faster than those of the plan that is.
void take_faster_families(const Plan& other, Plan& best) {
  for (plan::Alternative& row : best.explanation.alternatives) {
    if (row.strategy == best.strategy) continue;
    for (const plan::Alternative& family : other.explanation.alternatives) {
      if (family.strategy != row.strategy ||
          !is_faster(family.throughput_samples_per_s, row.throughput_samples_per_s))
        continue;
      row = family;
      row.note =
          fmt::format("is {:.2f}x as fast, with gradients added by {}.",
                      family.throughput_samples_per_s / best.prediction.throughput_samples_per_s,
                      to_string(other.sync));
    }
  }
}

/// The bits of one thread, where they cost nothing; where they cost something, what.
void prefer_ordered(const SyncSearch& by, Plan& plan) {
  if (plan.sync == GradientSync::Ordered) return;
  Plan ordered = plan;
  ordered.sync = GradientSync::Ordered;
  if (adds_between_ranks(plan)) {
    ordered = by.price(ordered);
    const double samples_per_s = ordered.prediction.throughput_samples_per_s;
    if (is_faster(plan.prediction.throughput_samples_per_s, samples_per_s)) {
      plan.explanation.notes.push_back(fmt::format(
          "Gradients are added by {}: {} samples/s, and results differ by rounding from those of "
          "one thread. By ordered, which keeps the bits, this split reaches {}.",
          to_string(plan.sync), format_rate(plan.prediction.throughput_samples_per_s),
          format_rate(samples_per_s)));
      return;
    }
    ordered.explanation = std::move(plan.explanation);
    for (plan::Alternative& row : ordered.explanation.alternatives) {
      if (row.strategy != ordered.strategy) continue;
      std::string note = std::move(row.note);
      row = alternative_of(ordered, row.strategy);
      row.note = std::move(note);
    }
  }
  plan = std::move(ordered);
}

}  // namespace

PlanResult plan_with_any_sync(const cluster::Cluster& cluster, PlanOptions options, TimeLimit time,
                              const SyncSearch& by) {
  const std::vector<GradientSync> syncs = syncs_to_search(cluster, options.gradient_precision);
  PlanResult best;
  std::vector<Plan> others;
  std::vector<FoundPlan> improvements;
  for (size_t s = 0; s < syncs.size(); ++s) {
    if (time.is_over() && best.plan) break;
    options.sync = syncs[s];
    PlanResult result = by.search(options, time.share(1.0 / static_cast<double>(syncs.size() - s)));
    add_improvements(improvements, result.improvements);
    if (!best.plan) {
      best = std::move(result);
    } else if (result.plan) {
      if (is_faster(result.plan->prediction.throughput_samples_per_s,
                    best.plan->prediction.throughput_samples_per_s))
        std::swap(best, result);
      others.push_back(*std::move(result.plan));
    }
  }
  if (!best.plan) return best;
  best.improvements = std::move(improvements);
  for (const Plan& other : others) take_faster_families(other, *best.plan);
  prefer_ordered(by, *best.plan);
  return best;
}

}  // namespace penstock::planner
