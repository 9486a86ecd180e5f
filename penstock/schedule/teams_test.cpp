#include "penstock/schedule/teams.h"

#include <gtest/gtest.h>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

TEST(Teams, MembersDoTheSameInTheSameOrder) {
  const ScheduleShape shape{
      .replicas = {2, 1}, .micro_batches = 8, .accumulate = 4, .policy = WeightPolicy::Flush};
  const Schedule whole = generate(Strategy::OneFOneBFlush, shape);
  const Schedule all = with_teams(whole, {2, 3});
  EXPECT_EQ(all.shape.replicas, (std::vector<int>{2, 2, 1, 1, 1}));
  ASSERT_EQ(all.workers.size(), 7);
  // Both members of replica 0 are neighbours.
  const WorkerTable table(all.shape);
  EXPECT_EQ(table.worker_of_replica(StageId{0}, 0).value, 0);
  EXPECT_EQ(table.worker_of_replica(StageId{1}, 0).value, 1);
  EXPECT_EQ(table.worker_of_replica(StageId{0}, 1).value, 2);
  EXPECT_EQ(table.worker_of_replica(StageId{4}, 0).value, 6);
  for (size_t w = 0; w < all.workers.size(); ++w) {
    const size_t team = w < 4 ? w / 2 : 2;
    ASSERT_EQ(all.workers[w].size(), whole.workers[team].size());
    for (size_t i = 0; i < all.workers[w].size(); ++i) {
      Action action = all.workers[w][i];
      action.stage = place_in_team(all.shape, action.stage).whole;
      action.peer = action.stage;
      EXPECT_EQ(action, whole.workers[team][i]);
    }
  }
  EXPECT_EQ(place_in_team(all.shape, StageId{3}),
            (TeamPlace{.whole = StageId{1}, .first = StageId{2}, .member = 1, .size = 3}));
  validate(all.shape);
}

TEST(Teams, AreNoStagesOfTheirOwnForDepthsAndDelays) {
  ScheduleShape shape{
      .replicas = {2, 1}, .micro_batches = 8, .accumulate = 8, .policy = WeightPolicy::TwoBuffered};
  const ScheduleShape all = with_teams(shape, {2, 2});
  EXPECT_EQ(pipeline_depth(all), pipeline_depth(shape));
  const auto depths = warmup_depths(shape);
  EXPECT_EQ(warmup_depths(all), (std::vector<int64_t>{depths[0], depths[0], depths[1], depths[1]}));
  EXPECT_EQ(mean_delays(all)[3], mean_delays(shape)[1]);
  ScheduleShape back = without_teams(all);
  EXPECT_EQ(back.worker_of_replica, (std::vector<int>{0, 1, 2}));
  back.worker_of_replica.clear();
  EXPECT_EQ(back, shape);
}

TEST(Teams, OfOneMemberChangeNothing) {
  const ScheduleShape shape{.replicas = {1, 1}, .micro_batches = 4, .accumulate = 4};
  EXPECT_EQ(with_teams(shape, {}), shape);
  EXPECT_EQ(with_teams(shape, {1, 1}), shape);
}

TEST(Teams, StagesOnOneWorkerHaveTeamsOfOneSize) {
  const ScheduleShape shape =
      with_placement(Strategy::Interleaved, {.replicas = {1, 1, 1, 1},
                                             .micro_batches = 4,
                                             .accumulate = 4,
                                             .policy = WeightPolicy::Flush});
  EXPECT_EQ(with_teams(shape, {2, 2, 2, 2}).num_workers(), 4);
  try {
    (void)with_teams(shape, {2, 1, 1, 1});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "worker 0 holds stages 0 and 2, whose teams have 2 and 1 members: expected as "
                 "many");
  }
  EXPECT_THROW((void)with_teams(shape, {2, 2}), ConfigError);
  ScheduleShape wrong = with_teams(shape, {2, 2, 2, 2});
  wrong.teams = {2, 2, 2, 3};
  EXPECT_THROW(validate(wrong), ConfigError);
}

}  // namespace
}  // namespace penstock::schedule
