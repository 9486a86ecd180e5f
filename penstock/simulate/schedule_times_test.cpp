// The simulated idle time of every flushed schedule equals its closed form, and the time of a clock
// that is independent of the simulator.
#include <gtest/gtest.h>

#include "penstock/schedule/generators/testing_closed_forms.h"
#include "penstock/simulate/simulator.h"

namespace penstock::simulate {
namespace {

using schedule::testing::Case;
using schedule::testing::Times;

Costs costs_of(const Case& c, const Times& times) {
  const StageCost stage{.forward_ns = times.forward,
                        .backward_ns = times.backward(),
                        .backward_weight_ns = times.backward_weight};
  Costs costs;
  costs.stages.assign(static_cast<size_t>(stages_of(c)), stage);
  return costs;
}

}  // namespace

TEST(SimulatedIdleTime, EqualsTheClosedForms) {
  const std::vector<Times>& samples = schedule::testing::times_samples();
  size_t next = 0;
  int64_t compared = 0;
  for (int64_t p = 2; p <= 16; ++p) {
    for (int64_t m = 1; m <= 64; ++m) {
      for (const Case& c : schedule::testing::variants(p, m)) {
        // Each case with one of the sets of times, round-robin; the clock's own test uses all of
        // them.
        Times times = samples[next++ % samples.size()];
        for (size_t i = 0; i < samples.size() && !closed_idle(c, times); ++i)
          times = samples[next++ % samples.size()];
        const schedule::Schedule compute = generate(c.kind, shape_of(c));
        const schedule::Schedule full = lower(compute, schedule::chain_links(stages_of(c)));
        const Result result = simulate(full, costs_of(c, times), {});
        const auto clocking = clock_schedule(compute, times);
        ASSERT_TRUE(clocking) << describe(c, times);
        ASSERT_EQ(result.makespan_ns, clocking->makespan) << describe(c, times);
        if (!closed_idle(c, times)) continue;
        const int64_t work = (times.forward + times.backward()) * m * c.chunks;
        ASSERT_EQ(result.makespan_ns - work, *closed_idle(c, times)) << describe(c, times);
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 8000);
}

}  // namespace penstock::simulate
