// Plans whose stages are run by teams: what waits for whom, which links carry what, memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/teams.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/error.h"

namespace penstock::simulate {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

cluster::Cluster servers(int per_server, int count, int64_t outer_latency_ns = 0) {
  return {
      .levels = {{.name = "server", .count = per_server, .bandwidth_bytes_per_s = 1'000'000'000},
                 {.name = "rack",
                  .count = count,
                  .bandwidth_bytes_per_s = 1'000'000'000,
                  .latency_ns = outer_latency_ns}},
      .device = {}};
}

plan::Plan pipeline(const std::vector<int>& teams, int replicas = 1) {
  plan::Plan plan;
  plan.strategy = plan::Strategy::OneFOneBFlush;
  plan.weights = plan::WeightPolicy::Flush;
  plan.micro_batches = 8;
  plan.cluster = servers(4, 4);
  int next = 0;
  for (size_t s = 0; s < teams.size(); ++s) {
    plan.stages.push_back({.layers = {"layer" + std::to_string(s)},
                           .replicas = replicas,
                           .tensor = teams[s],
                           .forward_ns = 1000,
                           .backward_ns = 2000,
                           .backward_weight_ns = 800,
                           .step_ns = 500,
                           .weight_bytes = 40,
                           .stash_bytes = 7,
                           .first_worker = next});
    next += replicas * teams[s];
    if (s > 0)
      plan.links.push_back(
          {StageId{static_cast<int32_t>(s) - 1}, StageId{static_cast<int32_t>(s)}, 0});
  }
  return plan;
}

plan::Plan without_teams_of(plan::Plan plan) {
  int next = 0;
  for (plan::Stage& stage : plan.stages) {
    stage.tensor = 1;
    stage.first_worker = next;
    next += stage.replicas;
  }
  return plan;
}

std::string refusal(const schedule::Schedule& schedule, const Costs& costs) {
  try {
    (void)simulate(schedule, costs);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(SimulatedTeams, EqualMembersTakeTheTimeAndMemoryOfOneWorker) {
  for (const std::vector<int>& teams : {std::vector<int>{2, 2}, {4, 1}, {1, 3, 2}}) {
    const plan::Plan plan = pipeline(teams);
    const Result all = simulate_plan(plan, 3, {});
    const Result whole = simulate_plan(without_teams_of(plan), 3, {});
    EXPECT_EQ(all.makespan_ns, whole.makespan_ns);
    ASSERT_EQ(all.peak_memory_bytes.size(), static_cast<size_t>(plan.num_workers()));
    size_t w = 0;
    for (size_t s = 0; s < teams.size(); ++s) {
      for (int m = 0; m < teams[s]; ++m, ++w)
        EXPECT_EQ(all.peak_memory_bytes[w], whole.peak_memory_bytes[s]) << "worker " << w;
    }
  }
}

TEST(SimulatedTeams, AreMadeWhileTheyRunOrInMemoryWithTheSameTimes) {
  for (const plan::Strategy kind : {plan::Strategy::GPipe, plan::Strategy::OneFOneBFlush,
                                    plan::Strategy::OneFOneB, plan::Strategy::DataParallel}) {
    plan::Plan plan = pipeline(
        kind == plan::Strategy::DataParallel ? std::vector<int>{3} : std::vector<int>{2, 3}, 2);
    plan.strategy = kind;
    plan.weights = plan::default_policy(kind);
    const PlannedSchedule planned = planned_schedule(plan, 3);
    EXPECT_FALSE(planned.in_memory());
    const schedule::Schedule full = schedule::lower(
        schedule::with_teams(schedule::generate(kind, schedule::shape_of(plan, 3)), plan.teams()),
        schedule::links_of(plan));
    EXPECT_EQ(planned.num_actions(), full.num_actions());
    EXPECT_EQ(planned.simulate(costs_of(plan), {.keep_timeline = true}).timeline,
              simulate(full, costs_of(plan)).timeline)
        << to_string(kind);
  }
}

TEST(SimulatedTeams, StagesOnOneWorkerHaveTeamsToo) {
  plan::Plan plan = pipeline({2, 2, 2, 2});
  plan.strategy = plan::Strategy::ZbV;
  plan.worker_of_replica = {0, 1, 1, 0};
  for (plan::Stage& stage : plan.stages) stage.first_worker = -1;
  const Result all = simulate_plan(plan, 2, {});
  for (plan::Stage& stage : plan.stages) stage.tensor = 1;
  const Result whole = simulate_plan(plan, 2, {});
  EXPECT_EQ(all.makespan_ns, whole.makespan_ns);
  EXPECT_EQ(all.peak_memory_bytes.size(), 4);
}

// Each member gets a message of its own over its server's one link.
TEST(SimulatedTeams, MessagesOfMembersShareTheLinksOfTheirServers) {
  plan::Plan plan = pipeline({4, 4});
  plan.micro_batches = 1;
  plan.links[0].bytes = 100;
  const auto makespan = [](const plan::Plan& of) { return simulate_plan(of, 1, {}).makespan_ns; };
  const int64_t computing = 2 * 3000 + 500;
  // Between servers 0 and 1: four messages, one behind the other, each way.
  EXPECT_EQ(makespan(plan), computing + 2 * 400);
  // Inside a server each worker has its own link.
  plan.cluster = servers(8, 2);
  EXPECT_EQ(makespan(plan), computing + 2 * 100);
}

TEST(SimulatedTeams, TooManyMembersAreRefused) {
  plan::Plan plan = pipeline({2, 2});
  for (plan::Stage& stage : plan.stages) {
    stage.first_worker = -1;
    stage.tensor = INT32_MAX;
  }
  EXPECT_GT(actions_per_step(plan), int64_t{INT32_MAX});
  EXPECT_THROW((void)simulate_plan(plan, 1, {}), ConfigError);
  EXPECT_THROW((void)costs_of(plan), ConfigError);
}

TEST(SimulatedTeams, PlacesAreThoseOfThePlan) {
  plan::Plan plan = pipeline({2, 2}, 2);
  plan.links[0].bytes = 100;
  // Both stages across both of the first servers: nothing leaves a server but the turns do.
  plan.cluster = servers(4, 2, 50);
  const int64_t apart = simulate_plan(plan, 1, {}).makespan_ns;
  plan.stages[0].first_worker = 4;
  plan.stages[1].first_worker = 0;
  EXPECT_EQ(simulate_plan(plan, 1, {}).makespan_ns, apart);
  plan.stages[0].first_worker = 2;
  plan.stages[1].first_worker = 4;
  EXPECT_THROW(simulate_plan(plan, 1, {}), ConfigError);
  plan.stages[1].first_worker = 6;
  EXPECT_THROW(simulate_plan(plan, 1, {}), ConfigError);
}

TEST(SimulatedTeams, AMemberThatIsLateKeepsTheOthersWaiting) {
  // Worker 0 receives at once, worker 1 after 300 ns more.
  const schedule::Schedule schedule = schedule::parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1 1\n# hosts: 0 1 2\n# teams: 1 2\n"
      "# micro-batches: 1  accumulate: 1  weights: flush\n"
      "0F0@0,0SEND_F0,0SEND_F0>2\n1RECV_F0,1F0@0\n2RECV_F0<0,2F0@0\n",
      "test");
  Costs costs;
  costs.bandwidth_bytes_per_s = 1'000'000'000;
  costs.stages = {{.forward_ns = 10}, {.forward_ns = 20}, {.forward_ns = 20}};
  costs.links = {{StageId{0}, StageId{1}, 100}, {StageId{0}, StageId{2}, 300}};
  const Result result = simulate(schedule, costs);
  const schedule::TimelineEvent& early = result.timeline.workers[1].back();
  const schedule::TimelineEvent& late = result.timeline.workers[2].back();
  EXPECT_EQ(late.end_ns, 10 + 100 + 300 + 20);
  EXPECT_EQ(early.end_ns, late.end_ns);
  EXPECT_EQ(early.start_ns, 10 + 100);
  EXPECT_EQ(early.waiting_ns, 300);
  EXPECT_EQ(late.waiting_ns, 0);
}

TEST(SimulatedTeams, ASlowMemberSlowsAll) {
  const plan::Plan plan = pipeline({4});
  Options slow{.keep_timeline = true, .seed = 3, .stragglers = {.share = 0.25, .factor = 3}};
  const Result result = simulate_plan(plan, 2, slow);
  // Of four members one is slow, and all computations with sums take three times as long.
  EXPECT_GE(result.makespan_ns, 2 * 8 * 3 * 3000);
  for (const auto& events : result.timeline.workers) {
    for (const schedule::TimelineEvent& event : events) {
      if (event.action.op == schedule::Op::Forward) {
        EXPECT_EQ(event.end_ns - event.start_ns - event.waiting_ns, 3000);
      }
    }
  }
  slow = {.seed = 5, .compute_spread = 0.2};
  EXPECT_GT(simulate_plan(plan, 8, slow).makespan_ns,
            simulate_plan(pipeline({1}), 8, slow).makespan_ns);
}

TEST(SimulatedTeams, ACrossOrderIsADeadlockThatNamesTheTeam) {
  const schedule::Schedule schedule = schedule::parse_schedule(
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# hosts: 0 1\n# teams: 2\n"
      "# micro-batches: 2  accumulate: 2  weights: flush\n# lowered: yes\n"
      "0F0@0,0F1@0\n1F0@0\n",
      "test");
  Costs costs;
  costs.stages.assign(2, {.forward_ns = 10});
  EXPECT_THAT(refusal(schedule, costs),
              HasSubstr("worker 0 is at 0F1@0 and waits for the other members of its team (1 of 2 "
                        "have arrived)"));
}

// Two that have arrived are no meeting where they compute something else.
TEST(SimulatedTeams, MembersAtDifferentComputationsWaitForever) {
  const auto schedule_of = [](const std::string& second) {
    return schedule::parse_schedule(
        "# penstock schedule 1\n# kind: custom\n# replicas: 1 1\n# hosts: 0 1\n# teams: 2\n"
        "# micro-batches: 2  accumulate: 2  weights: flush\n# lowered: yes\n0F0@0,0F1@0\n" +
            second + "\n",
        "test");
  };
  Costs costs;
  costs.stages.assign(2, {.forward_ns = 10});
  EXPECT_EQ(simulate(schedule_of("1F0@0,1F1@0"), costs).makespan_ns, 20);
  EXPECT_THAT(refusal(schedule_of("1F1@0,1F0@0"), costs),
              HasSubstr("worker 1 is at 1F1@0 and waits for the other members of its team (1 of 2 "
                        "have arrived)"));
}

TEST(SimulatedTeams, SumsOverReplicasAreThoseOfEachMember) {
  plan::Plan plan = pipeline({2, 2}, 2);
  for (plan::Stage& stage : plan.stages) stage.sync_ns = 700;
  plan::Plan whole = without_teams_of(plan);
  EXPECT_EQ(simulate_plan(plan, 3, {}).makespan_ns, simulate_plan(whole, 3, {}).makespan_ns);
  for (plan::Plan* each : {&plan, &whole}) {
    for (plan::Stage& stage : each->stages)
      stage.buckets = {{.weight_bytes = 40, .backward_ns = 1500, .step_ns = 500, .wire_ns = 700}};
  }
  EXPECT_EQ(simulate_plan(plan, 3, {}).makespan_ns, simulate_plan(whole, 3, {}).makespan_ns);
}

}  // namespace penstock::simulate
