#include "penstock/simulate/variation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "penstock/simulate/simulator.h"
#include "penstock/util/error.h"

namespace penstock::simulate {
namespace {

using schedule::LazySchedule;
using schedule::ScheduleShape;
using schedule::Strategy;
using testing::HasSubstr;

/// One worker, `steps` steps of 100 ns.
Result serial(int64_t steps, const Options& options) {
  const ScheduleShape shape{.replicas = {1}, .micro_batches = steps, .accumulate = 1};
  Costs costs;
  costs.stages = {{.forward_ns = 30, .backward_ns = 60, .step_ns = 10}};
  return simulate(LazySchedule(Strategy::Serial, shape, {}), costs, options);
}

LazySchedule wide(int workers, int64_t steps) {
  return {Strategy::DataParallel,
          {.replicas = {workers}, .micro_batches = workers * steps, .accumulate = workers},
          {}};
}

Costs wide_costs() {
  Costs costs;
  costs.stages = {{.forward_ns = 3'000, .backward_ns = 6'000, .step_ns = 1'000}};
  return costs;
}

std::string options_failure(const Options& options) {
  try {
    serial(10, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Stragglers, TheGivenShareOfWorkersIsSlowerByTheFactor) {
  Options options{.keep_timeline = true};
  options.stragglers = {.share = 0.05, .factor = 2};
  const Result result = simulate(wide(100, 1), wide_costs(), options);
  const auto slow =
      std::count_if(result.timeline.workers.begin(), result.timeline.workers.end(),
                    [](const auto& events) { return events.front().end_ns == 6'000; });
  EXPECT_EQ(slow, 5);
  EXPECT_EQ(result.makespan_ns, 20'000);
  // 95 workers compute for half of the time before the SYNC and step at the end.
  EXPECT_NEAR(result.idle_share, 0.95 * 0.5, 1e-9);
}

TEST(Stragglers, OnlyTheSeedDecidesWhich) {
  Options options{.keep_timeline = true};
  options.stragglers = {.share = 0.1, .factor = 3};
  options.compute_spread = 0.1;
  const Result once = simulate(wide(50, 3), wide_costs(), options);
  EXPECT_EQ(once.timeline, simulate(wide(50, 3), wide_costs(), options).timeline);
  options.seed = 2;
  EXPECT_NE(once.timeline, simulate(wide(50, 3), wide_costs(), options).timeline);
}

TEST(Stragglers, ComputeTimesSpreadLognormallyAroundTheirMean) {
  Options options{.keep_timeline = true, .compute_spread = 0.25};
  const Result result = simulate(wide(200, 50), wide_costs(), options);
  double sum = 0;
  double squares = 0;
  int64_t count = 0;
  for (const auto& events : result.timeline.workers) {
    for (const auto& event : events) {
      if (event.action.op != schedule::Op::Forward) continue;
      const double scaled = static_cast<double>(event.end_ns - event.start_ns) / 3'000;
      sum += scaled;
      squares += std::log(scaled) * std::log(scaled);
      ++count;
    }
  }
  EXPECT_EQ(count, 10'000);
  EXPECT_NEAR(sum / static_cast<double>(count), 1, 0.01);
  // E[log^2] = sigma^2 + (sigma^2 / 2)^2
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)),
              std::sqrt(0.0625 + 0.03125 * 0.03125), 0.01);
}

// F takes a quarter of the time that varies by a tenth, and so varies by twice as much.
TEST(Stragglers, ShorterComputationsVaryByMore) {
  Options options{.keep_timeline = true, .compute_spread = 0.1, .compute_spread_at_ns = 4 * 3'000};
  const Result result = simulate(wide(200, 50), wide_costs(), options);
  double sum = 0;
  double squares = 0;
  int64_t count = 0;
  for (const auto& events : result.timeline.workers) {
    for (const auto& event : events) {
      if (event.action.op != schedule::Op::Forward) continue;
      const double scaled = static_cast<double>(event.end_ns - event.start_ns) / 3'000;
      sum += scaled;
      squares += scaled * scaled;
      ++count;
    }
  }
  const double mean = sum / static_cast<double>(count);
  EXPECT_NEAR(mean, 1, 0.01);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count) - mean * mean), 0.2, 0.01);
}

TEST(Variation, RefusesOptionsOutOfRange) {
  const auto with = [](auto change) {
    Options options;
    change(options);
    return options_failure(options);
  };
  EXPECT_THAT(with([](Options& o) { o.stragglers.share = 1.5; }),
              HasSubstr("between 0 and 1, found 1.5"));
  EXPECT_THAT(with([](Options& o) { o.stragglers.share = std::nan(""); }),
              HasSubstr("between 0 and 1"));
  EXPECT_THAT(with([](Options& o) { o.stragglers.factor = 0; }), HasSubstr("above 0"));
  EXPECT_THAT(with([](Options& o) { o.compute_spread = -1; }), HasSubstr("spread"));
}

}  // namespace penstock::simulate
