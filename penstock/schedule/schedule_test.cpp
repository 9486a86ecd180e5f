#include "penstock/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

using ::testing::HasSubstr;

std::string shape_refusal(const ScheduleShape& shape) {
  try {
    validate(shape);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(ScheduleShape, NumbersWorkersStageByStage) {
  const ScheduleShape shape{.replicas = {2, 1, 3}};
  const WorkerTable table(shape);
  EXPECT_EQ(shape.num_workers(), 6);
  EXPECT_EQ(table.num_workers(), 6);
  EXPECT_FALSE(table.has_shared_workers());
  EXPECT_EQ(table.worker_of_replica(StageId{2}, 0), WorkerId{3});
  EXPECT_EQ(table.worker_of(StageId{2}, MicroBatchId{7}), WorkerId{4});
  const std::vector<int> stages = {0, 0, 1, 2, 2, 2};
  for (int w = 0; w < 6; ++w)
    EXPECT_EQ(table.first_stage_of(WorkerId{w}), StageId{stages[static_cast<size_t>(w)]});
}

TEST(ScheduleShape, TheLastMiniBatchMayBeShorter) {
  const ScheduleShape shape{.replicas = {1}, .micro_batches = 10, .accumulate = 4};
  EXPECT_EQ(shape.num_mini_batches(), 3);
  EXPECT_EQ(shape.mini_batch_of(MicroBatchId{9}), MiniBatchId{2});
  EXPECT_EQ((ScheduleShape{.replicas = {1}, .micro_batches = 0}.num_mini_batches()), 0);
  EXPECT_EQ((ScheduleShape{.replicas = {1}, .micro_batches = 5, .accumulate = INT64_MAX}
                 .num_mini_batches()),
            1);
}

TEST(WarmupDepth, IsTheCeilingOfWorkersAfterTheStageOverItsReplicas) {
  EXPECT_EQ(warmup_depths({.replicas = {1, 1, 1, 1}}), (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(warmup_depths({.replicas = {7, 1}}), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(warmup_depths({.replicas = {1, 3, 1}}), (std::vector<int64_t>{5, 2, 1}));
  EXPECT_EQ(warmup_depths({.replicas = {1, 1, 1}, .slack = 2}), (std::vector<int64_t>{7, 4, 1}));
}

TEST(PipelineDepth, IsTheNumberOfStagesWithoutReplication) {
  EXPECT_EQ(pipeline_depth({.replicas = {1}}), 1);
  EXPECT_EQ(pipeline_depth({.replicas = {1, 1, 1, 1}}), 4);
  EXPECT_EQ(pipeline_depth({.replicas = {4}}), 1);
  EXPECT_EQ(pipeline_depth({.replicas = {2, 1}}), 3);
}

TEST(Validate, NamesWhatIsWrong) {
  EXPECT_EQ(shape_refusal({.replicas = {1, 2}, .micro_batches = 0}), "");
  EXPECT_THAT(shape_refusal({.replicas = {}}), HasSubstr("at least 1 stage"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 0}}), HasSubstr("stage 1 has 0 replicas"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1}, .worker_of_replica = {0}}),
              HasSubstr("hosts names 1 workers"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1}, .worker_of_replica = {0, 2}}),
              HasSubstr("worker 2"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1}, .worker_of_replica = {0, -1}}),
              HasSubstr("worker -1"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1, 1}, .worker_of_replica = {0, 2, 0}}),
              HasSubstr("leaves out worker 1 of 3"));
  EXPECT_THAT(shape_refusal({.replicas = {2}, .worker_of_replica = {0, 0}}),
              HasSubstr("two replicas of stage 0 on worker 0"));
  EXPECT_THAT(shape_refusal(
                  {.replicas = {1, 1}, .policy = WeightPolicy::Stash, .worker_of_replica = {0, 0}}),
              HasSubstr("need weight policy flush"));
  EXPECT_EQ(shape_refusal(
                {.replicas = {1, 1}, .policy = WeightPolicy::Stash, .worker_of_replica = {1, 0}}),
            "");
  EXPECT_THAT(shape_refusal({.replicas = {1, 1}, .slack = -1}), HasSubstr("slack"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1}, .recompute = {true}}),
              HasSubstr("recompute has 1 entries"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1}, .offload = {true}}),
              HasSubstr("offload has 1 entries"));
  EXPECT_THAT(
      shape_refusal({.replicas = {1, 1}, .recompute = {false, true}, .offload = {true, true}}),
      HasSubstr("stage 1 recomputes, so it has no activations to move"));
  EXPECT_THAT(shape_refusal({.replicas = {1}, .policy = WeightPolicy::Current, .offload = {true}}),
              HasSubstr("under policy current it keeps one micro-batch"));
  EXPECT_THAT(shape_refusal({.replicas = {1, -5}}), HasSubstr("stage 1 has -5 replicas"));
  EXPECT_THAT(shape_refusal({.replicas = {1}, .micro_batches = -1}), HasSubstr("found -1"));
  EXPECT_THAT(shape_refusal({.replicas = {1}, .micro_batches = 1, .accumulate = 0}),
              HasSubstr("accumulate"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1, 1},
                             .micro_batches = 9,
                             .accumulate = 2,
                             .policy = WeightPolicy::TwoBuffered}),
              HasSubstr("accumulate is 2, depth is 3"));
}

TEST(Validate, RefusesEnormousNumbersWithoutAllocating) {
  EXPECT_THAT(shape_refusal({.replicas = {INT32_MAX, INT32_MAX, INT32_MAX}}),
              HasSubstr("at most 10000000 workers"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1}, .micro_batches = INT64_MAX}),
              HasSubstr("more than"));
  EXPECT_THAT(shape_refusal({.replicas = {1, 1}, .micro_batches = 1'000'000'000'000'000'000}),
              HasSubstr("more than"));
  EXPECT_EQ(shape_refusal({.replicas = {1, 1}, .micro_batches = 4, .accumulate = INT64_MAX}), "");
}

}  // namespace penstock::schedule
