#include "penstock/schedule/timeline_difference.h"

#include <gtest/gtest.h>

#include "penstock/schedule/testing_timelines.h"

namespace penstock::schedule {
namespace {

TEST(Differences, AreSummedByOpAndStageLargestFirst) {
  const TimelineComparison comparison =
      compare(two_workers("predicted"), two_workers("measured", 23'000));
  EXPECT_EQ(comparison.matched, 10);
  EXPECT_EQ(comparison.only_predicted + comparison.only_measured, 0);
  ASSERT_EQ(comparison.rows.size(), 5u);
  EXPECT_EQ(comparison.rows[0].op, Op::Backward);
  EXPECT_EQ(comparison.rows[0].stage, StageId{0});
  EXPECT_EQ(comparison.rows[0].count, 2);
  EXPECT_DOUBLE_EQ(comparison.rows[0].more_ns(), 6'000);
  EXPECT_EQ(comparison.rows[1].stage, StageId{1});
  EXPECT_DOUBLE_EQ(comparison.rows[2].more_ns(), 0);
}

TEST(Differences, OfTheSameTimelineAreNone) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Timeline timeline = random_timeline(seed, 3, 4, 200);
    for (const TimelineDifference& row : compare(timeline, timeline).rows)
      EXPECT_EQ(row.more_with_waiting_ns(), 0) << "seed " << seed;
    EXPECT_EQ(compare(timeline, timeline).matched, 600) << "seed " << seed;
  }
}

TEST(Differences, MatchActionsInAnotherOrderAndCountThoseWithoutAMatch) {
  Timeline predicted{"predicted",
                     {{event_of(Op::Forward, 0, 0, 0, 10), event_of(Op::Forward, 0, 1, 10, 20)},
                      {event_of(Op::Step, 1, 0, 0, 5)}}};
  Timeline measured{"measured",
                    {{event_of(Op::Forward, 0, 1, 0, 14), event_of(Op::Forward, 0, 2, 14, 20),
                      event_of(Op::Forward, 0, 0, 20, 30)}}};
  const TimelineComparison comparison = compare(predicted, measured);
  EXPECT_EQ(comparison.matched, 2);
  EXPECT_EQ(comparison.only_predicted, 1);
  EXPECT_EQ(comparison.only_measured, 1);
  ASSERT_EQ(comparison.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(comparison.rows[0].more_ns(), 4);
}

TEST(Differences, CountWaitingSeparately) {
  const Timeline predicted{"p", {{event_of(Op::RecvForward, 1, 0, 0, 100, 90)}}};
  const Timeline measured{"m", {{event_of(Op::RecvForward, 1, 0, 0, 300, 250)}}};
  const TimelineDifference row = compare(predicted, measured).rows.at(0);
  EXPECT_DOUBLE_EQ(row.more_ns(), 40);
  EXPECT_DOUBLE_EQ(row.more_with_waiting_ns(), 200);
}

}  // namespace
}  // namespace penstock::schedule
