// The clock that judges the orders of zb-auto and zb-auto-v has the simulator's times, also where
// messages share links.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/orders/order_clock.h"
#include "penstock/schedule/placement.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::simulate {
namespace {

using schedule::OrderProblem;
using schedule::Strategy;

/// By as many in a row the orders of plans are judged.
constexpr int kMiniBatches = 3;

int64_t between(Rng& rng, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(rng.below(static_cast<uint64_t>(most - least + 1)));
}

/// Stages of about 1 us, messages that occupy links for up to three times as long, on workers alone
/// or in servers of two, which share the link of their server.
plan::Plan random_plan(Rng& rng, int workers, bool in_a_v, Strategy strategy) {
  plan::Plan plan;
  plan.strategy = strategy;
  plan.micro_batches = between(rng, 1, 3 * workers);
  const auto bandwidth = [&] { return between(rng, 20, 1'000) * 1'000'000; };
  if (rng.below(2) == 0) {
    plan.cluster.levels = {{.name = "rack",
                            .count = workers,
                            .bandwidth_bytes_per_s = bandwidth(),
                            .latency_ns = between(rng, 0, 300)}};
  } else {
    plan.cluster.levels = {{.name = "server",
                            .count = 2,
                            .bandwidth_bytes_per_s = bandwidth(),
                            .latency_ns = between(rng, 0, 100),
                            .by_reference = rng.below(3) == 0},
                           {.name = "rack",
                            .count = (workers + 1) / 2,
                            .bandwidth_bytes_per_s = bandwidth(),
                            .latency_ns = between(rng, 0, 300)}};
  }
  const int stages = in_a_v ? 2 * workers : workers;
  for (int s = 0; s < stages; ++s) {
    const int64_t weight = between(rng, 200, 1'500);
    plan.stages.push_back({.layers = {"layer" + std::to_string(s)},
                           .forward_ns = between(rng, 500, 1'500),
                           .backward_ns = between(rng, 500, 2'000) + weight,
                           .backward_weight_ns = weight,
                           .step_ns = between(rng, 0, 3'000),
                           .recompute = rng.below(3) == 0});
    if (s > 0) plan.links.push_back({StageId{s - 1}, StageId{s}, between(rng, 0, 60)});
  }
  if (in_a_v) plan.worker_of_replica = schedule::v_placement(stages);
  return plan;
}

OrderProblem problem_of(const schedule::ScheduleShape& shape, int workers) {
  OrderProblem problem{.num_workers = workers,
                       .num_micro_batches = static_cast<int32_t>(shape.micro_batches),
                       .link_units = shape.link_units,
                       .repetitions = kMiniBatches};
  for (size_t s = 0; s < shape.costs.size(); ++s) {
    const schedule::StepCosts& costs = shape.costs[s];
    problem.stages.push_back(
        {.workers = {shape.worker_of_replica.empty() ? static_cast<int32_t>(s)
                                                     : shape.worker_of_replica[s]},
         .forward = costs.forward,
         .input = costs.input,
         .again = costs.again,
         .weight = costs.weight,
         .message = costs.message,
         .busy = costs.busy,
         .finish = costs.finish});
  }
  return problem;
}

/// Those that split backward passes, which alone are orders of F, I and W.
std::vector<Strategy> kinds(bool in_a_v) {
  return in_a_v ? std::vector{Strategy::ZbV, Strategy::VHalf, Strategy::VMin, Strategy::ZbAutoV}
                : std::vector{Strategy::ZbH1, Strategy::ZbH2, Strategy::ZbAuto};
}

}  // namespace

TEST(OrderTimes, AreTheSimulatorsWhereMessagesShareLinks) {
  Rng rng(16);
  for (int i = 0; i < 60; ++i) {
    const bool in_a_v = i % 2 == 1;
    const int workers = static_cast<int>(between(rng, 2, 6));
    const Strategy own = in_a_v ? Strategy::ZbAutoV : Strategy::ZbAuto;
    plan::Plan plan = random_plan(rng, workers, in_a_v, own);
    const OrderProblem problem = problem_of(schedule::shape_of(plan, 1), workers);
    schedule::OrderClock clock(problem);
    int64_t least_published = INT64_MAX;
    for (const Strategy kind : kinds(in_a_v)) {
      plan.strategy = kind;
      const schedule::Schedule made = schedule::generate(kind, schedule::shape_of(plan, 1));
      const int64_t simulated = simulate_plan(plan, kMiniBatches, {}).makespan_ns;
      EXPECT_EQ(clock.run(schedule::order_of(made.workers)).end, simulated)
          << i << ": " << to_string(kind) << ", " << workers << " workers, " << plan.micro_batches
          << " micro-batches, " << plan.cluster.levels.size() << " levels";
      // Zb-auto may keep as much as zb-h2, and zb-auto-v as zb-v, unless told otherwise.
      if (kind != own)
        least_published = std::min(least_published, simulated);
      else
        EXPECT_LE(simulated, least_published) << i;
    }
  }
}

}  // namespace penstock::simulate
