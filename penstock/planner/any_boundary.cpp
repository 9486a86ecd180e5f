#include "penstock/planner/any_boundary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "penstock/plan/boundaries.h"
#include "penstock/planner/families/families.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/format_rate.h"

namespace penstock::planner {

using plan::BoundaryCoding;
using plan::Coding;
using plan::Plan;

namespace {

/// From the most exact to the smallest.
constexpr std::array kChoices = {BoundaryCoding{.kind = Coding::Float32},
                                 BoundaryCoding{.kind = Coding::BFloat16},
                                 BoundaryCoding{.kind = Coding::Int8}};
constexpr size_t kMostLinks = 32;

double rate_of(const Plan& plan) {
  // Filling and draining stay small beside so many micro-batches.
  constexpr int64_t kMicroBatches = 256;
  const int64_t steps = std::max<int64_t>(2, ceil_div(kMicroBatches, plan.micro_batches));
  return simulate::simulate_plan(plan, steps, {}).throughput_samples_per_s;
}

void choose_alike(Plan& plan, double enough) {
  for (const BoundaryCoding& coding : kChoices) {
    plan::set_boundaries(plan, coding);
    if (rate_of(plan) >= enough) return;
  }
}

void choose_each(Plan& plan, double enough) {
  for (plan::Link& link : plan.links) {
    for (const BoundaryCoding& coding : kChoices) {
      const BoundaryCoding smaller = std::exchange(link.coding, coding);
      if (coding == smaller || rate_of(plan) >= enough) break;
      link.coding = smaller;
    }
  }
}

}  // namespace

Plan with_chosen_boundaries(Plan plan) {
  plan::set_boundaries(plan, kChoices.front());
  const double exact = rate_of(plan);
  Plan coded = plan;
  plan::set_boundaries(coded, kChoices.back());
  const double smallest = rate_of(coded);
  if (!(smallest > kFaster * exact)) return plan;
  if (coded.links.size() > kMostLinks)
    choose_alike(coded, smallest / kFaster);
  else
    choose_each(coded, smallest / kFaster);
  coded.prediction.throughput_samples_per_s = rate_of(coded);
  coded.explanation.notes.push_back(fmt::format(
      "Messages between stages travel as {}: {} samples/s. In float32 this split reaches {}, and "
      "learns without their rounding.",
      plan::boundaries_text(coded), format_rate(coded.prediction.throughput_samples_per_s),
      format_rate(exact)));
  return coded;
}

PlanResult plan_with_any_boundary(
    PlanOptions options, TimeLimit time,
    const std::function<PlanResult(const PlanOptions& options, TimeLimit time)>& search) {
  constexpr double kHalf = 0.5;
  options.boundary = kChoices.front();
  PlanResult exact = search(options, time.share(kHalf));
  options.boundary = kChoices.back();
  PlanResult small = search(options, time);
  if (!small.plan) return exact;
  *small.plan = with_chosen_boundaries(*std::move(small.plan));
  const bool is_better =
      !exact.plan || small.plan->prediction.throughput_samples_per_s >
                         kFaster * exact.plan->prediction.throughput_samples_per_s;
  return is_better ? small : exact;
}

}  // namespace penstock::planner
