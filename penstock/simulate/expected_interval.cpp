#include "penstock/simulate/expected_interval.h"

#include <algorithm>

#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/arithmetic.h"

namespace penstock::simulate {

namespace {

constexpr int64_t kMostActions = 50'000;
constexpr int64_t kMicroBatches = 200;
constexpr uint64_t kSeeds = 3;
// Beyond this, single passes are so long that nobody would call it a spread.
constexpr double kMostSpread = 1;

}  // namespace

double share_left_by_variation(const plan::Plan& plan) {
  if (!(plan.compute_spread > 0) || plan.num_workers() < 2) return 1;
  const int64_t mini_batches = std::max<int64_t>(4, ceil_div(kMicroBatches, plan.micro_batches));
  const int64_t per_micro_batch =
      3 * static_cast<int64_t>(plan.stages.size()) + 4 * static_cast<int64_t>(plan.links.size());
  const int64_t micro_batches = saturating_mul(mini_batches, plan.micro_batches);
  if (saturating_mul(micro_batches, per_micro_batch) > kMostActions) return 1;
  const PlannedSchedule schedule = planned_schedule(plan, mini_batches);
  const Costs costs = costs_of(plan);
  Options options;
  const double even = schedule.simulate(costs, options).throughput_samples_per_s;
  if (!(even > 0)) return 1;
  options.compute_spread = std::min(plan.compute_spread, kMostSpread);
  double varied = 0;
  for (options.seed = 1; options.seed <= kSeeds; ++options.seed)
    varied += schedule.simulate(costs, options).throughput_samples_per_s / kSeeds;
  return std::min(1.0, varied / even);
}

std::optional<plan::Interval> expected_interval(const plan::Plan& plan, double samples_per_s) {
  if (!(plan.compute_error > 0)) return std::nullopt;
  return plan::throughput_interval(plan, samples_per_s, share_left_by_variation(plan));
}

}  // namespace penstock::simulate
