#include "penstock/planner/any_boundary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

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

struct Rates {
  double exact = 0;  ///< in float32
  double chosen = 0;
};

/// Sets the codings of the plan's links.
Rates choose(Plan& plan, const BoundaryCoding& smallest) {
  plan::set_boundaries(plan, kChoices.front());
  const double exact = rate_of(plan);
  Plan coded = plan;
  plan::set_boundaries(coded, smallest);
  const double fastest = rate_of(coded);
  if (!(fastest > kFaster * exact)) return {exact, exact};
  if (coded.links.size() > kMostLinks)
    choose_alike(coded, fastest / kFaster);
  else
    choose_each(coded, fastest / kFaster);
  plan.links = std::move(coded.links);
  return {exact, rate_of(plan)};
}

void add_note(Plan& plan, const Rates& rates) {
  const std::string codings = plan::boundaries_text(plan);
  if (codings.empty()) return;
  plan.explanation.notes.push_back(fmt::format(
      "Messages between stages travel as {}: {} samples/s. In float32 this split reaches {}, and "
      "learns without their rounding.",
      codings, format_rate(rates.chosen), format_rate(rates.exact)));
}

/// Of a plan that was found with all boundaries in `smallest`.
void choose_and_price(const BoundarySearch& by, const BoundaryCoding& smallest, Plan& plan) {
  const std::vector<plan::Link> found = plan.links;
  choose(plan, smallest);
  if (plan.links != found) plan.prediction = by.price(plan).prediction;
  if (plan::boundaries_text(plan).empty()) return;
  Plan exact = plan;
  plan::set_boundaries(exact, kChoices.front());
  add_note(plan, {.exact = by.price(exact).prediction.throughput_samples_per_s,
                  .chosen = plan.prediction.throughput_samples_per_s});
}

}  // namespace

Plan with_chosen_boundaries(Plan plan, const BoundaryCoding& smallest) {
  const Rates rates = choose(plan, smallest);
  if (plan::boundaries_text(plan).empty()) return plan;
  plan.prediction.throughput_samples_per_s = rates.chosen;
  add_note(plan, rates);
  return plan;
}

PlanResult plan_with_any_boundary(PlanOptions options, TimeLimit time, const BoundarySearch& by) {
  PlanResult best;
  for (size_t c = 0; c < kChoices.size(); ++c) {
    options.boundary = kChoices[c];
    PlanResult result =
        by.search(options, time.share(1.0 / static_cast<double>(kChoices.size() - c)));
    if (result.plan && !kChoices[c].is_exact()) choose_and_price(by, kChoices[c], *result.plan);
    const bool is_better =
        c == 0 || (result.plan &&
                   (!best.plan || result.plan->prediction.throughput_samples_per_s >
                                      kFaster * best.plan->prediction.throughput_samples_per_s));
    if (is_better) best = std::move(result);
  }
  return best;
}

}  // namespace penstock::planner
