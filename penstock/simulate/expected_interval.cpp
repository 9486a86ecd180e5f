#include "penstock/simulate/expected_interval.h"

#include <algorithm>

#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate {

namespace {

// Of a run with variation: of many short steps, of a few long ones, of a single one.
constexpr int64_t kUsualActions = 50'000;
constexpr int64_t kMostActions = 1'000'000;
constexpr int64_t kMicroBatches = 200;
constexpr int64_t kLeastSteps = 4;
constexpr uint64_t kSeeds = 3;
// Beyond this, single passes are so long that nobody would call it a spread.
constexpr double kMostSpread = 1;

/// Whether messages or sums take processor time; makes that twice as much. It was measured beside
/// work that is not the model's, which loses less.
bool double_processor_time(Costs& costs) {
  bool any = false;
  const auto twice = [&any](int64_t& ns) {
    any = any || ns > 0;
    ns = saturating_mul(ns, 2);
  };
  if (costs.cluster) {
    for (cluster::Level& level : costs.cluster->levels) {
      twice(level.processor_ns_per_message);
      twice(level.processor_ns_per_gb);
    }
  }
  for (StageCost& stage : costs.stages) {
    for (plan::GradientBucket& bucket : stage.buckets) twice(bucket.processor_ns);
  }
  return any;
}

}  // namespace

std::optional<double> share_left_by_variation(const plan::Plan& plan) {
  if (plan.num_workers() < 2) return 1;
  const Costs costs = costs_of(plan);
  Costs dearer = costs;
  if (!double_processor_time(dearer) && !(plan.prediction.compute_spread > 0)) return 1;
  const int64_t per_step = actions_per_step(plan);
  if (per_step > kMostActions) return std::nullopt;
  const int64_t wanted = std::max(kLeastSteps, ceil_div(kMicroBatches, plan.micro_batches));
  const int64_t steps = std::clamp<int64_t>(kUsualActions / per_step, 1, wanted);
  const uint64_t seeds = steps < kLeastSteps ? 1 : kSeeds;
  const PlannedSchedule schedule = planned_schedule(plan, steps);
  Options options;
  const double even = schedule.simulate(costs, options).throughput_samples_per_s;
  if (!(even > 0)) return 1;
  options.compute_spread = std::min(plan.prediction.compute_spread, kMostSpread);
  for (const plan::Stage& stage : plan.stages)
    options.compute_spread_at_ns += stage.compute_ns() + stage.step_ns;
  double varied = 0;
  for (options.seed = 1; options.seed <= seeds; ++options.seed) {
    varied +=
        schedule.simulate(dearer, options).throughput_samples_per_s / static_cast<double>(seeds);
  }
  return std::min(1.0, varied / even);
}

std::optional<plan::Interval> expected_interval(const plan::Plan& plan, double samples_per_s) {
  if (!(plan.prediction.compute_error > 0)) return std::nullopt;
  const std::optional<double> varied = share_left_by_variation(plan);
  return varied ? plan::throughput_interval(plan, samples_per_s, *varied) : std::nullopt;
}

}  // namespace penstock::simulate
