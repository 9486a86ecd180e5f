#include "penstock/simulate/simulate_plan.h"

#include <gtest/gtest.h>

#include "penstock/schedule/placement.h"
#include "penstock/util/error.h"

namespace penstock::simulate {
namespace {

plan::Plan plan_of(const std::string& strategy, int stages) {
  plan::Plan plan;
  plan.strategy = plan::parse_scheduled_strategy(strategy);
  plan.weights = plan::default_policy(plan.strategy);
  plan.micro_batches = 8;
  plan.cluster = {.levels = {{.name = "server",
                              .count = 8,
                              .bandwidth_bytes_per_s = 1'000'000'000,
                              .latency_ns = 5}},
                  .device = {}};
  for (int s = 0; s < stages; ++s) {
    plan.stages.push_back({.layers = {"layer" + std::to_string(s)},
                           .forward_ns = 100,
                           .backward_ns = 200,
                           .backward_weight_ns = 80});
    if (s > 0) plan.links.push_back({StageId{s - 1}, StageId{s}, 10});
  }
  return plan;
}

}  // namespace

TEST(SimulatePlan, GeneratesWhileItRunsWhereThatIsPossible) {
  EXPECT_FALSE(planned_schedule(plan_of("1f1b-flush", 4), 3).in_memory());
  EXPECT_FALSE(planned_schedule(plan_of("eager-1f1b", 4), 3).in_memory());
  EXPECT_TRUE(planned_schedule(plan_of("zb-h1", 4), 3).in_memory());
}

TEST(SimulatePlan, BothWaysGiveTheSameCountsAndTimes) {
  for (const char* strategy : {"gpipe", "1f1b", "1f1b-flush", "eager-1f1b"}) {
    const plan::Plan plan = plan_of(strategy, 4);
    const PlannedSchedule planned = planned_schedule(plan, 3);
    const schedule::Schedule full = schedule::lower(
        schedule::generate(plan::parse_scheduled_strategy(strategy), planned.shape()),
        schedule::chain_links(4));
    EXPECT_EQ(planned.num_actions(), full.num_actions()) << strategy;
    EXPECT_EQ(simulate_plan(plan, 3, {.keep_timeline = true}).timeline,
              simulate(full, costs_of(plan)).timeline)
        << strategy;
  }
}

TEST(SimulatePlan, TheTimelineKeepsWhatIsAskedFor) {
  const plan::Plan plan = plan_of("1f1b-flush", 4);
  const auto keeps = [](const schedule::Action& action) {
    return action.op == schedule::Op::Step && action.mini_batch.value == 1;
  };
  Result all = simulate_plan(plan, 3, {.keep_timeline = true});
  const Result kept = simulate_plan(plan, 3, {.keep_timeline = true, .keeps = keeps});
  EXPECT_EQ(kept.makespan_ns, all.makespan_ns);
  EXPECT_EQ(kept.peak_memory_bytes, all.peak_memory_bytes);
  for (auto& events : all.timeline.workers) {
    std::erase_if(events, [&](const auto& event) { return !keeps(event.action); });
    EXPECT_EQ(events.size(), 1);
  }
  EXPECT_EQ(kept.timeline, all.timeline);
}

TEST(SimulatePlan, TakesKindsWithSplitBackwardsAndSharedWorkers) {
  plan::Plan v = plan_of("zb-v", 4);
  v.worker_of_replica = schedule::v_placement(4);
  const Result result = simulate_plan(v, 2, {});
  EXPECT_EQ(result.micro_batches, 16);
  EXPECT_EQ(result.peak_memory_bytes.size(), 2u);
  EXPECT_GE(result.makespan_ns, 16 * 2 * 300);
  // The split saves time where the pipeline drains.
  EXPECT_LT(simulate_plan(plan_of("zb-h1", 4), 2, {}).makespan_ns,
            simulate_plan(plan_of("1f1b-flush", 4), 2, {}).makespan_ns);
}

TEST(SimulatePlan, RefusesWhatDoesNotFitIntoMemory) {
  plan::Plan plan = plan_of("zb-h1", 4);
  EXPECT_THROW(simulate_plan(plan, 100'000'000, {}), ConfigError);
}

// All replicas of a stage send to one link before any message is received: a table that walks over
// all waiting messages for each message would be too slow.
TEST(SimulatePlan, ManyMessagesMayWaitAtOneLink) {
  constexpr int kReplicas = 200'000;
  const schedule::ScheduleShape shape{
      .replicas = {kReplicas, 1}, .micro_batches = kReplicas, .accumulate = kReplicas};
  const PlannedSchedule wide(schedule::Strategy::OneFOneBFlush, shape, schedule::chain_links(2));
  Costs costs;
  costs.stages.assign(2, {.forward_ns = 10, .backward_ns = 20});
  EXPECT_EQ(wide.simulate(costs, {}).makespan_ns, 10 + int64_t{kReplicas} * 30 + 20);
}

}  // namespace penstock::simulate
