#include "penstock/simulate/failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "penstock/simulate/variation.h"
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

std::string failure(const Options& options) {
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

TEST(Failures, NoneHappenByDefault) {
  const Result result = serial(100, {});
  EXPECT_EQ(result.makespan_ns, 10'000);
  EXPECT_EQ(result.num_failures, 0);
  EXPECT_EQ(result.useful_share, 1);
}

TEST(Failures, CheckpointsPauseEachWorker) {
  Options options;
  options.failures = {.checkpoint_every = 10, .checkpoint_ns = 7};
  const Result result = serial(100, options);
  EXPECT_EQ(result.makespan_ns, 10'000 + 10 * 7);
  EXPECT_NEAR(result.useful_share, 10'000.0 / 10'070, 1e-12);
}

TEST(Failures, EveryNanosecondIsUsefulOrRedoneOrDown) {
  int64_t most = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Options options{.seed = seed};
    options.failures = {
        .worker_mtbf_ns = 3'000, .restart_ns = 250, .checkpoint_every = 10, .checkpoint_ns = 20};
    const Result result = serial(100, options);
    EXPECT_EQ(result.makespan_ns, result.schedule_ns + result.redone_ns + result.down_ns)
        << "seed " << seed;
    EXPECT_LE(result.redone_ns, result.num_failures * 1'020) << "seed " << seed;
    EXPECT_LE(result.down_ns, result.num_failures * 250) << "seed " << seed;
    most = std::max(most, result.num_failures);
  }
  EXPECT_GE(most, 5);
}

// Daly, "A higher order estimate of the optimum checkpoint interval", FGCS 2006: each interval of
// length D takes e^(R/M) (e^(D/M) - 1) M.
TEST(Failures, TakeTheExpectedTime) {
  constexpr double kMean = 4'000;
  constexpr double kRestart = 300;
  double sum = 0;
  constexpr int kRuns = 4'000;
  for (int seed = 0; seed < kRuns; ++seed) {
    std::vector<int64_t> finished;
    for (int64_t t = 1; t <= 40; ++t) finished.push_back(100 * t);
    const Failures failures{.worker_mtbf_ns = static_cast<int64_t>(kMean) * 8,
                            .restart_ns = static_cast<int64_t>(kRestart),
                            .checkpoint_every = 10};
    sum += static_cast<double>(
        detail::with_failures(failures, static_cast<uint64_t>(seed), 8, 4'000, finished)
            .makespan_ns);
  }
  const double expected = 4 * std::exp(kRestart / kMean) * (std::exp(1'000 / kMean) - 1) * kMean;
  EXPECT_NEAR(sum / kRuns, expected, 0.02 * expected);
}

TEST(Failures, WithoutCheckpointsTheScheduleStartsOver) {
  const std::vector<int64_t> finished = {100, 200, 300};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Failures failures{.worker_mtbf_ns = 200, .restart_ns = 10};
    const auto outcome = detail::with_failures(failures, seed, 1, 300, finished);
    EXPECT_EQ(outcome.makespan_ns, 300 + outcome.redone_ns + outcome.down_ns);
  }
}

TEST(Failures, MoreWorkersFailMoreOften) {
  Options options;
  options.failures = {.worker_mtbf_ns = 10'000'000, .restart_ns = 1'000, .checkpoint_every = 5};
  const Result few = simulate(wide(10, 200), wide_costs(), options);
  const Result many = simulate(wide(400, 200), wide_costs(), options);
  // Two milliseconds of work: 2 failures expected for 10 workers, 80 or more for 400.
  EXPECT_LT(few.num_failures, 12);
  EXPECT_GT(many.num_failures, 60);
  EXPECT_LT(many.useful_share, few.useful_share);
}

TEST(Failures, AJobThatNeverReachesACheckpointIsRefused) {
  Options options;
  options.failures = {.worker_mtbf_ns = 1, .restart_ns = 10, .checkpoint_every = 5};
  EXPECT_THAT(failure(options), HasSubstr("never gets from one checkpoint to the next"));
}

TEST(Failures, CostIsWorkersTimesTimeTimesPrice) {
  Costs costs;
  costs.stages = {{.forward_ns = 1'800'000'000'000, .backward_ns = 1'800'000'000'000}};
  costs.samples_per_micro_batch = 5;
  const Result result = simulate(wide(4, 2), costs, {.price_per_worker_hour = 2.5});
  EXPECT_DOUBLE_EQ(result.cost, 4 * 2 * 2.5);
  EXPECT_DOUBLE_EQ(result.cost_per_sample, 20.0 / (4 * 2 * 5));
}

TEST(Failures, RefusesOptionsOutOfRange) {
  const auto with = [](auto change) {
    Options options;
    change(options);
    return failure(options);
  };
  EXPECT_THAT(with([](Options& o) { o.stragglers.share = 1.5; }),
              HasSubstr("between 0 and 1, found 1.5"));
  EXPECT_THAT(with([](Options& o) { o.stragglers.share = std::nan(""); }),
              HasSubstr("between 0 and 1"));
  EXPECT_THAT(with([](Options& o) { o.stragglers.factor = 0; }), HasSubstr("above 0"));
  EXPECT_THAT(with([](Options& o) { o.compute_spread = -1; }), HasSubstr("spread"));
  EXPECT_THAT(with([](Options& o) { o.failures.restart_ns = -1; }),
              HasSubstr("must not be negative"));
  EXPECT_THAT(with([](Options& o) { o.price_per_worker_hour = HUGE_VAL; }), HasSubstr("price"));
}

}  // namespace penstock::simulate
