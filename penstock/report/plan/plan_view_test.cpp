#include "penstock/report/plan/plan_view.h"

#include <gtest/gtest.h>

#include "penstock/report/plan/testing_plans.h"

namespace penstock::report {
namespace {

TEST(PlanView, NamesPlacesFromTheOutsideIn) {
  const plan::Plan plan = chain_plan(40, 3);  // servers of 8, racks of 8 servers, 2 racks
  const PlanView view(plan);
  EXPECT_EQ(view.where({0, 1}), "rack 0 server 0");
  EXPECT_EQ(view.where({0, 9}), "rack 0 server 0-1");
  EXPECT_EQ(view.where({64, 8}), "rack 1 server 0");
  EXPECT_EQ(view.where({60, 8}), "rack 0-1");
  EXPECT_EQ(view.stages[2].where, "rack 0 server 0-1");
  EXPECT_EQ(view.stages[2].workers, "6-8");
}

TEST(PlanView, LevelsWithOneUnitAreNotNamed) {
  plan::Plan plan = chain_plan(2, 1);
  plan.cluster.levels = {
      {"socket", 2, 1'000, 0, false}, {"server", 1, 1'000, 0, false}, {"rack", 3, 1'000, 0, false}};
  EXPECT_EQ(PlanView(plan).where({2, 2}), "server 1") << "a server with one socket";
  plan.cluster.levels = {{"flat", 4, 1'000, 0, false}};
  EXPECT_EQ(PlanView(plan).where({2, 2}), "");
}

TEST(PlanView, WorkersWithSeveralStagesAddThemUp) {
  plan::Plan plan = v_plan(6);
  plan.stages[2].forward_ns = 200'000'000;
  const PlanView view(plan);
  ASSERT_EQ(view.workers.size(), 6u);
  EXPECT_EQ(view.workers[2].stages, (std::vector<size_t>{2, 9}));
  EXPECT_DOUBLE_EQ(view.workers[2].time_ns, view.stages[2].time_ns() + view.stages[9].time_ns());
  EXPECT_EQ(view.workers[2].memory_bytes, 2'000'000'000);
  EXPECT_EQ(view.bottleneck.kind, Bottleneck::Kind::Worker);
  EXPECT_EQ(view.bottleneck_name(), "worker 2 (stages 2, 9)");
  EXPECT_TRUE(view.bottleneck.is_stage(2));
  EXPECT_TRUE(view.bottleneck.is_stage(9));
  EXPECT_FALSE(view.bottleneck.is_stage(3));
  EXPECT_EQ(view.stages[9].workers, "2");
  EXPECT_EQ(view.stages[5].where, "server 1");
  EXPECT_EQ(view.links[3].level, "rack") << "worker 3 to worker 4";
  EXPECT_EQ(view.links[5].level, "one worker") << "the bottom of the V";
  EXPECT_TRUE(view.links[5].by_reference);
}

TEST(PlanView, TeamsTakeTheWorkersOfAllMembers) {
  const plan::Plan plan = team_plan();
  const PlanView view(plan);
  EXPECT_EQ(view.stages[0].workers, "0-7");
  EXPECT_EQ(view.stages[0].where, "server 0-1");
  EXPECT_EQ(view.stages[1].workers, "8-9");
  // Four members of a server send over its one link.
  plan::Plan whole = plan;
  whole.stages[0].tensor = whole.stages[1].tensor = 1;
  whole.stages[0].replicas = 8;
  whole.stages[0].team_bytes = 0;
  const double latency_ns = 25'000;
  EXPECT_DOUBLE_EQ(view.links[0].time_ns - latency_ns,
                   4 * (PlanView(whole).links[0].time_ns - latency_ns));
}

TEST(PlanView, TeamsOfWorkersWithSeveralStagesHaveAllTheirMembers) {
  plan::Plan plan = v_plan(3);
  plan.cluster.levels[1].count = 2;
  for (plan::Stage& stage : plan.stages) stage.tensor = 2;
  const PlanView view(plan);
  ASSERT_EQ(view.workers.size(), 6u);
  EXPECT_EQ(view.workers[2].stages, (std::vector<size_t>{1, 4}));
  EXPECT_EQ(view.workers[3].stages, (std::vector<size_t>{1, 4}));
  EXPECT_EQ(view.stages[4].workers, "2-3");
}

TEST(PlanView, MessagesBetweenTheSameTwoWorkersShareTheirLink) {
  plan::Plan plan = v_plan(2);
  for (plan::Link& link : plan.links) link.bytes = 10'000'000'000;
  const PlanView view(plan);
  EXPECT_EQ(view.bottleneck.kind, Bottleneck::Kind::Link);
  EXPECT_EQ(view.bottleneck.crossing, 2);
  EXPECT_DOUBLE_EQ(view.bottleneck.time_ns, 2 * (2 * 1e10 / 100 + 2'000))
      << "server: 100 bytes per ns";
}

TEST(PlanView, TimesArePerMicroBatchOfThePipeline) {
  const plan::Plan plan = vgg_plan();
  const PlanView view(plan);
  EXPECT_DOUBLE_EQ(view.stages[0].forward_ns, 230e6 / 15);
  EXPECT_DOUBLE_EQ(view.stages[0].sync_ns, 40e6 / 15);
  EXPECT_DOUBLE_EQ(view.stages[1].forward_ns, 12e6) << "one replica takes every micro-batch";
  EXPECT_DOUBLE_EQ(view.links[0].time_ns, 2 * 6.42e6 / 1.25 + 25e3)
      << "rack: 1.25 bytes per ns, both levels' latency";
  EXPECT_EQ(view.links[0].level, "rack");
  EXPECT_TRUE(view.bottleneck.is_stage(0));
  EXPECT_NEAR(view.bottleneck.time_ns, static_cast<double>(plan.prediction.bottleneck_ns), 1);
}

TEST(PlanView, EverythingAcrossABoundaryCountsTogether) {
  plan::Plan plan = chain_plan(4, 1);
  plan.links = {{StageId{0}, StageId{1}, 1'000},
                {StageId{1}, StageId{2}, 1'000},
                {StageId{2}, StageId{3}, 1'000}};
  EXPECT_EQ(PlanView(plan).bottleneck.kind, Bottleneck::Kind::Stage);
  // Each takes 24 ms in the server of 100 GB/s, less than a stage; together they take more.
  plan.links.push_back({StageId{0}, StageId{2}, 1'200'000'000});
  plan.links.push_back({StageId{1}, StageId{3}, 1'300'000'000});
  plan.prediction.bottleneck_ns = 0;
  const PlanView view(plan);
  ASSERT_EQ(view.bottleneck.kind, Bottleneck::Kind::Link);
  EXPECT_TRUE(view.bottleneck.is_link(4));
  EXPECT_EQ(view.bottleneck_name(), "the 3 links that pass from stage 1 to later ones");
  EXPECT_NEAR(view.bottleneck.time_ns, 2 * 2'500'001'000.0 / 100 + 2'000, 1);
}

TEST(PlanView, MemoryLimitIsThatOfTheSmallestDevice) {
  plan::Plan plan = vgg_plan();
  plan.cluster.groups = {{.first = 3, .count = 2, .device = {"small", 8'000'000'000, 1.0}},
                         {.first = 15, .count = 1, .device = {"large", 32'000'000'000, 1.0}}};
  const PlanView view(plan);
  EXPECT_EQ(view.stages[0].memory_limit_bytes, 8'000'000'000);
  EXPECT_EQ(view.stages[1].memory_limit_bytes, 32'000'000'000);
  EXPECT_EQ(view.least_memory_limit_bytes, 8'000'000'000);
  EXPECT_EQ(PlanView(plan, 5).least_memory_limit_bytes, 5);
}

TEST(PlanView, StagesWithoutPlacesFollowEachOther) {
  plan::Plan plan = vgg_plan();
  for (plan::Stage& stage : plan.stages) stage.first_worker = -1;
  EXPECT_EQ(PlanView(plan).stages[1].workers, "15");
  plan.cluster.levels = {{"flat", 15, 1'000, 0, false}};
  EXPECT_EQ(PlanView(plan).stages[1].workers, "-") << "the cluster is too small";
  plan.cluster.levels.clear();
  EXPECT_EQ(PlanView(plan).links[0].level, "-");
}

}  // namespace
}  // namespace penstock::report
