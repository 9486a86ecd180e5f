#include "penstock/schedule/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"

namespace penstock::schedule {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LoopPlacement, AssignsStagesRoundRobin) {
  EXPECT_THAT(loop_placement(6, 3), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(loop_placement(4, 2, 2), ElementsAre(0, 2, 1, 3, 0, 2, 1, 3));
  EXPECT_THAT(loop_placement(4, 4), IsEmpty());
  EXPECT_THROW(loop_placement(5, 2), ConfigError);
  EXPECT_THROW(loop_placement(0, 1), ConfigError);
  EXPECT_THROW(loop_placement(std::numeric_limits<int>::max(), 1, std::numeric_limits<int>::max()),
               ConfigError);
}

TEST(VPlacement, GoesDownAndUpAgain) {
  EXPECT_THAT(v_placement(6), ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_THAT(v_placement(4, 2), ElementsAre(0, 2, 1, 3, 1, 3, 0, 2));
  EXPECT_THROW(v_placement(3), ConfigError);
}

TEST(BidirectionalPlacement, GivesEveryWorkerOneStageOfEachDirection) {
  EXPECT_THAT(bidirectional_placement(4), ElementsAre(0, 3, 1, 2, 2, 1, 3, 0));
  EXPECT_THAT(bidirectional_placement(2, 2), ElementsAre(0, 1, 2, 3, 1, 0, 3, 2));
  EXPECT_THROW(bidirectional_placement(3), ConfigError);
}

TEST(WorkerTable, KnowsWhichWorkerHoldsWhichStages) {
  const ScheduleShape shape{.replicas = {2, 2, 2, 2},
                            .worker_of_replica = bidirectional_placement(4)};
  EXPECT_NO_THROW(validate(shape));
  const WorkerTable table(shape);
  EXPECT_EQ(table.num_workers(), 4);
  EXPECT_TRUE(table.has_shared_workers());
  EXPECT_EQ(table.worker_of(StageId{1}, MicroBatchId{4}), WorkerId{1});
  EXPECT_EQ(table.worker_of(StageId{1}, MicroBatchId{5}), WorkerId{2});
  const auto held = table.held_by(WorkerId{3});
  ASSERT_EQ(held.size(), 2U);
  EXPECT_EQ(held[0].stage, StageId{0});
  EXPECT_EQ(held[0].replica, 1);
  EXPECT_EQ(held[1].stage, StageId{3});
  EXPECT_EQ(held[1].replica, 0);
  EXPECT_EQ(table.replica_on(WorkerId{3}, StageId{0}), 1);
  EXPECT_EQ(table.replica_on(WorkerId{3}, StageId{1}), -1);
  EXPECT_EQ(table.first_stage_of(WorkerId{3}), StageId{0});
}

}  // namespace penstock::schedule
