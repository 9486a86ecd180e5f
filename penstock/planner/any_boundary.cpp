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

Plan with_chosen_boundaries(Plan plan, const BoundaryCoding& smallest) {
  plan::set_boundaries(plan, kChoices.front());
  const double exact = rate_of(plan);
  Plan coded = plan;
  plan::set_boundaries(coded, smallest);
  const double fastest = rate_of(coded);
  if (!(fastest > kFaster * exact)) return plan;
  if (coded.links.size() > kMostLinks)
    choose_alike(coded, fastest / kFaster);
  else
    choose_each(coded, fastest / kFaster);
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
  PlanResult best;
  for (size_t c = 0; c < kChoices.size(); ++c) {
    options.boundary = kChoices[c];
    PlanResult result = search(options, time.share(1.0 / static_cast<double>(kChoices.size() - c)));
    if (result.plan && !kChoices[c].is_exact())
      *result.plan = with_chosen_boundaries(*std::move(result.plan), kChoices[c]);
    const bool is_better =
        c == 0 || (result.plan &&
                   (!best.plan || result.plan->prediction.throughput_samples_per_s >
                                      kFaster * best.plan->prediction.throughput_samples_per_s));
    if (is_better) best = std::move(result);
  }
  return best;
}

}  // namespace penstock::planner
