#include "penstock/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock::plan {
namespace {

using graph::ModelGraph;
using graph::ValueRef;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Plan two_stages() {
  Plan plan;
  plan.cluster = cluster::local_cluster(8, 1'000);
  plan.stages = {{.layers = {"a", "b"},
                  .replicas = 7,
                  .forward_ns = 10,
                  .backward_ns = 20,
                  .backward_weight_ns = 8,
                  .accumulate_ns = 4,
                  .step_ns = 1,
                  .sync_ns = 2,
                  .weight_bytes = 100,
                  .stash_bytes = 200,
                  .memory_bytes = 300},
                 {.layers = {"c"},
                  .replicas = 1,
                  .forward_ns = 5,
                  .backward_ns = 6,
                  .weight_bytes = 50,
                  .stash_bytes = 60,
                  .memory_bytes = 70}};
  plan.links = {{StageId{0}, StageId{1}, 64}};
  return plan;
}

ModelGraph chain() {
  return ModelGraph::build(1,
                           {{"a", "", {ValueRef::model_input(0)}, 1},
                            {"b", "", {{LayerId{0}, 0}}, 1},
                            {"c", "", {{LayerId{1}, 0}}, 1}},
                           {{LayerId{2}, 0}});
}

template <class Change>
std::string refusal_after(Change change) {
  Plan plan = two_stages();
  change(plan);
  return tests::message_of<ConfigError>([&] { validate(plan); });
}

template <class Change>
std::string placement_refusal(Change change) {
  Plan plan = two_stages();
  change(plan);
  return tests::message_of<ConfigError>([&] { stage_of_layer(plan, chain()); });
}

TEST(Plan, ConfigJoinsTheReplicaCounts) {
  EXPECT_EQ(two_stages().config(), "7-1");
  EXPECT_EQ(Plan().config(), "");
  EXPECT_THAT(two_stages().replicas(), ElementsAre(7, 1));
}

TEST(Plan, WorkersThatHoldSeveralStagesAreCountedOnce) {
  Plan plan = two_stages();
  plan.stages.assign(4, plan.stages[1]);
  plan.worker_of_replica = {0, 1, 1, 0};
  EXPECT_EQ(plan.num_workers(), 2);
  EXPECT_EQ(plan.config(), "2x2 chunks");
  EXPECT_THAT(workers_by_stage(plan),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(1), ElementsAre(0)));
  for (Stage& stage : plan.stages) stage.replicas = 2;
  plan.worker_of_replica = {0, 2, 1, 3, 1, 3, 0, 2};
  EXPECT_EQ(plan.config(), "2x(2x2 chunks)");
  plan.strategy = plan::Strategy::Chimera;
  plan.worker_of_replica = {0, 3, 1, 2, 2, 1, 3, 0};
  EXPECT_EQ(plan.config(), "4x2 chunks");
  EXPECT_EQ(workers_by_stage(plan)[1], (std::vector<int>{1, 2}));
  EXPECT_TRUE(workers_by_stage(two_stages()).empty());
}

TEST(Plan, TeamsTakeAWorkerPerMember) {
  Plan plan = two_stages();
  EXPECT_TRUE(plan.teams().empty());
  plan.stages[0].tensor = 4;
  EXPECT_EQ(plan.config(), "7t4-1");
  EXPECT_EQ(plan.num_workers(), 29);
  EXPECT_THAT(plan.teams(), ElementsAre(4, 1));
  plan.stages.assign(4, plan.stages[1]);
  plan.worker_of_replica = {0, 1, 1, 0};
  for (const size_t s : {0, 3}) plan.stages[s].tensor = 2;
  EXPECT_EQ(plan.config(), "2x2 chunks, teams of 2 and 1 and 1 and 2");
  EXPECT_EQ(plan.num_workers(), 3);
  for (Stage& stage : plan.stages) stage.tensor = 2;
  EXPECT_EQ(plan.config(), "2x2 chunks, teams of 2");
  EXPECT_EQ(plan.num_workers(), 4);
}

TEST(Plan, RecomputationRunsTheForwardPassOnceMore) {
  Plan plan = two_stages();
  EXPECT_EQ(plan.stages[0].work_ns(), 30);
  plan.stages[0].recompute = true;
  EXPECT_EQ(plan.stages[0].work_ns(), 40);
  EXPECT_EQ(plan.stages[0].compute_ns(), 30);
}

TEST(Plan, NumberOfWorkersSumsReplicasWithoutWrapping) {
  EXPECT_EQ(two_stages().num_workers(), 8);
  Plan plan = two_stages();
  plan.stages[0].replicas = INT_MAX;
  EXPECT_EQ(plan.num_workers(), INT_MAX);
}

TEST(StageOfLayer, FollowsTheOrderOfTheGraph) {
  EXPECT_THAT(stage_of_layer(two_stages(), chain()),
              ElementsAre(StageId{0}, StageId{0}, StageId{1}));
}

TEST(StageOfLayer, RefusesPlansThatDoNotCoverExactlyTheModel) {
  EXPECT_THAT(placement_refusal([](Plan& p) { p.stages[0].layers = {"a"}; }), HasSubstr("'b'"));
  EXPECT_THAT(placement_refusal([](Plan& p) {
                p.stages[1].layers = {"c", "d", "e"};
              }),
              AllOf(HasSubstr("'d'"), HasSubstr("does not have")));
  EXPECT_THAT(placement_refusal([](Plan& p) {
                p.stages[1].layers = {"c", "a"};
              }),
              AllOf(HasSubstr("'a' twice"), HasSubstr("stages 0 and 1")));
}

TEST(Plan, ALayerInTwoStagesIsRefusedWithoutTheModel) {
  EXPECT_THAT(refusal_after([](Plan& p) {
                p.stages[1].layers = {"c", "a"};
              }),
              HasSubstr("layer 'a' twice: in stages 0 and 1"));
}

TEST(StageOfLayer, RefusesEdgesFromALaterStageAndNamesBothLayers) {
  const std::string message = placement_refusal([](Plan& p) {
    p.stages[0].layers = {"a", "c"};
    p.stages[1].layers = {"b"};
  });
  EXPECT_THAT(message, AllOf(HasSubstr("layer 'c'"), HasSubstr("stage 0"), HasSubstr("layer 'b'"),
                             HasSubstr("stage 1")));
}

TEST(ValidatePlan, AcceptsAGoodPlan) { EXPECT_NO_THROW(validate(two_stages())); }

TEST(ValidatePlan, NamesTheStageAndTheValue) {
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages.clear(); }), HasSubstr("no stage"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[1].layers.clear(); }),
              HasSubstr("stage 1 has no layer"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[1].replicas = 0; }),
              HasSubstr("stage 1: expected replicas of at least 1, found 0"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[0].forward_ns = -1; }), HasSubstr("forward_ns"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[0].backward_ns = -1; }),
              HasSubstr("backward_ns"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[0].step_ns = -1; }), HasSubstr("step_ns"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[0].sync_ns = -1; }), HasSubstr("sync_ns"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[0].weight_bytes = -1; }),
              HasSubstr("weight_bytes"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[0].stash_bytes = -1; }),
              HasSubstr("stash_bytes"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[0].memory_bytes = -1; }),
              HasSubstr("memory_bytes"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.stages[0].forward_ns = INT64_MAX; }),
              HasSubstr("beyond 64 bits"));
}

TEST(ValidatePlan, RefusesBadCounts) {
  EXPECT_THAT(refusal_after([](Plan& p) { p.micro_batch_size = 0; }),
              HasSubstr("micro_batch_size"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.micro_batches = 0; }), HasSubstr("micro_batches"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.depth = 0; }), HasSubstr("depth"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.prediction.bottleneck_ns = -1; }),
              HasSubstr("bottleneck_ns"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.prediction.throughput_samples_per_s = std::nan(""); }),
              HasSubstr("throughput"));
  EXPECT_THAT(refusal_after([](Plan& p) {
                p.explanation.alternatives = {{plan::Strategy::DataParallel, "8", -1}};
              }),
              HasSubstr("'dp'"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.cluster.levels.clear(); }), HasSubstr("no level"));
}

TEST(ValidatePlan, RefusesPlacesThatOverlapOrLieOutside) {
  const auto placed = [](int first, int second) {
    return refusal_after([&](Plan& p) {
      p.stages[0].first_worker = first;
      p.stages[1].first_worker = second;
    });
  };
  EXPECT_THAT(placed(0, 7), HasSubstr("nothing was thrown"));
  EXPECT_THAT(placed(1, 0), HasSubstr("nothing was thrown"));
  EXPECT_THAT(placed(-1, -1), HasSubstr("nothing was thrown"));
  EXPECT_THAT(placed(0, 6), HasSubstr("stages 0 and 1 are both placed on worker 6"));
  EXPECT_THAT(placed(0, 8), HasSubstr("stage 1: first_worker 8"));
  EXPECT_THAT(placed(0, -1), HasSubstr("for every stage or for none"));
  EXPECT_THAT(placed(INT_MAX, 0), HasSubstr("the cluster has 8 workers"));
  EXPECT_THAT(placed(0, INT_MIN), HasSubstr("first_worker"));
}

TEST(ValidatePlan, RefusesPromisesThatCannotBe) {
  EXPECT_THAT(refusal_after([](Plan& p) { p.prediction.idle_share = std::nan(""); }),
              HasSubstr("idle_share"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.prediction.latency_ns = -1; }),
              HasSubstr("latency_ns"));
  EXPECT_THAT(refusal_after([](Plan& p) {
                p.prediction.bytes_per_sample = {1, 2};
              }),
              HasSubstr("bytes_per_sample"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.prediction.bytes_per_sample = {HUGE_VAL}; }),
              HasSubstr("bytes_per_sample"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.explanation.optimality_gap = HUGE_VAL; }),
              HasSubstr("optimality_gap"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.optimizer_state_per_weight = -1; }),
              HasSubstr("optimizer_state_per_weight"));
  EXPECT_THAT(refusal_after([](Plan& p) {
                p.sync = plan::GradientSync::Asynchronous;
                p.gradient_precision = FloatType::Float16;
              }),
              HasSubstr("found float16"));
}

TEST(ValidatePlan, RefusesLinksOutOfRangeOrBackwards) {
  EXPECT_THAT(refusal_after([](Plan& p) { p.links[0].to = StageId{2}; }), HasSubstr("2 stages"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.links[0].from = StageId{1}; }), HasSubstr("later one"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.links[0].from = StageId{-1}; }), HasSubstr("link 0"));
  EXPECT_THAT(refusal_after([](Plan& p) { p.links[0].bytes = -1; }), HasSubstr("bytes"));
}

}  // namespace
}  // namespace penstock::plan
