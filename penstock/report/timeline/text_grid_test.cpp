#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "penstock/report/report.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/util/error.h"

namespace penstock::report {
namespace {

using schedule::Op;
using schedule::Strategy;
using ::testing::HasSubstr;
using ::testing::Not;

schedule::Schedule generated(Strategy kind, std::vector<int> replicas, int64_t micro_batches,
                             int64_t accumulate) {
  return schedule::generate(kind, {.replicas = std::move(replicas),
                                   .micro_batches = micro_batches,
                                   .accumulate = accumulate,
                                   .policy = default_policy(kind)});
}

TEST(TextGrid, DrawsGPipe) {
  EXPECT_EQ(text_grid(generated(Strategy::GPipe, {1, 1, 1}, 3, 3)), &R"(
w0  F0 F1 F2 ..................B0--- B1--- B2---
w1  ...F0 F1 F2 .........B0--- B1--- B2--- ......
w2  ......F0 F1 F2 B0--- B1--- B2--- ............
)"[1]);
}

TEST(TextGrid, DrawsOneFOneB) {
  EXPECT_EQ(text_grid(generated(Strategy::OneFOneB, {1, 1}, 4, 1)), &R"(
w0  F0 F1 ......B0--- F2 B1--- F3 B2--- ...B3---
w1  ...F0 B0--- F1 B1--- F2 B2--- F3 B3--- ......
)"[1]);
}

TEST(TextGrid, WritesTheSecondStageOfAWorkerInLowerCase) {
  EXPECT_EQ(text_grid(schedule::parse_schedule("0F0,0F1,3F0,3I0,3W0,3F1,3I1,3W1,0B0,0B1\n1F0,2F0,"
                                               "1F1,2F1,2I0,1I0,2I1,1I1,2W0,2W1,1W0,1W1\n",
                                               "s")),
            &R"(
w0  F0 F1 ...f0 i0 w0 f1 i1 w1 B0--- B1--- ...
w1  ...F0 f0 F1 f1 i0 I0 ...i1 I1 w0 w1 W0 W1
f, b: second stage
)"[1]);
}

TEST(TextGrid, MarksAForwardThatRunsWithTheBackwardBehindIt) {
  const schedule::ScheduleShape shape =
      schedule::with_placement(Strategy::DualPipe, {.replicas = {2, 2, 2, 2},
                                                    .micro_batches = 8,
                                                    .accumulate = 8,
                                                    .policy = default_policy(Strategy::DualPipe)});
  const std::string text = text_grid(schedule::generate(Strategy::DualPipe, shape));
  EXPECT_THAT(text, HasSubstr("F6&b3---"));
  EXPECT_THAT(text, HasSubstr("F&: together with the next\n"));
  EXPECT_THAT(text_grid(generated(Strategy::GPipe, {1, 1, 1, 1}, 8, 8)), Not(HasSubstr("&")));
}

TEST(TextGrid, NamesTheStagesWhereAWorkerHasThree) {
  EXPECT_EQ(text_grid(schedule::parse_schedule("0F0,2F0,4F0,4B0,2B0,0B0\n1F0,3F0,3B0,1B0\n", "s")),
            &R"(
w0  0F0 ....2F0 ....4F0 4B0---- ........2B0---- ........0B0----
w1  ....1F0 ....3F0 ............3B0---- ........1B0---- ........
)"[1]);
}

TEST(TextGrid, SumsHaveARowOfTheirOwn) {
  schedule::Timeline timeline{
      "predicted",
      {{{{.op = Op::Forward}, 0, 10, 0}, {{.op = Op::Backward}, 10, 30, 0}},
       {{{.op = Op::Forward}, 0, 10, 0}, {{.op = Op::Backward}, 10, 40, 10}}}};
  timeline.sums = {{.worker = WorkerId{1},
                    .events = {{.bucket = 1, .start_ns = 20, .end_ns = 27},
                               {.bucket = 10, .start_ns = 30, .end_ns = 40}}},
                   {.server = 0, .events = {{.bucket = 1, .start_ns = 20, .end_ns = 24}}}};
  EXPECT_EQ(text_grid(timeline), &R"(
w0  F0 B0--- ...
w1  F0 ...B0---
s1  ......11.000
k0  ......1.....
s, k: buckets of gradients that a worker and a server add up
)"[1]);
}

TEST(TextGrid, RecomputationTakesAForwardAndNormIsShown) {
  schedule::Schedule schedule = schedule::parse_schedule("0F0,0B0\n", "s");
  schedule.workers[0].insert(schedule.workers[0].begin() + 1, {.op = Op::Recompute});
  EXPECT_EQ(text_grid(schedule), "w0  F0 R0 B0---\n");
  const schedule::Timeline timeline{
      "measured", {{{{.op = Op::Forward}, 0, 100, 0}, {{.op = Op::NormGradients}, 100, 200, 0}}}};
  EXPECT_EQ(text_grid(timeline), "w0  F0 ~~~\n");
}

TEST(TextGrid, NeverPassesItsWidth) {
  for (const int width : {20, 33, 80, 120}) {
    std::istringstream lines(text_grid(generated(Strategy::OneFOneB, {2, 1, 1}, 1000, 2), width));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), static_cast<size_t>(width));
      EXPECT_EQ(line.back(), '>');
    }
  }
  EXPECT_THROW(text_grid(schedule::Timeline{}, 5), ConfigError);
}

TEST(TextGrid, ShowsWaitingAsIdleAndSyncAndStep) {
  schedule::Action forward{.op = Op::Forward};
  schedule::Action sync{.op = Op::SyncGradients};
  schedule::Action step{.op = Op::Step};
  const schedule::Timeline timeline{
      "measured", {{{forward, 100, 200, 0}, {sync, 200, 500, 100}, {step, 500, 600, 0}}}};
  EXPECT_EQ(text_grid(timeline), "w0  F0 ...======+++\n");
}

TEST(TextGrid, EmptyTimelinesAndEnormousTimesAreDrawn) {
  EXPECT_EQ(text_grid(schedule::Timeline{}), "");
  EXPECT_EQ(text_grid(schedule::Timeline{"x", {{}, {}}}), "w0\nw1\n");
  const schedule::Timeline timeline{
      "x",
      {{{{.op = Op::Forward}, 0, 1, 0}, {{.op = Op::Backward}, INT64_MAX - 10, INT64_MAX, 0}}}};
  EXPECT_EQ(text_grid(timeline, 20), "w0  F0 ............>\n");
}

TEST(TextGrid, DamagedSchedulesAreDrawnAsFarAsTheyGo) {
  schedule::Schedule schedule = generated(Strategy::OneFOneB, {1, 1}, 4, 1);
  schedule.workers[1].clear();
  EXPECT_EQ(text_grid(schedule), "w0  F0 F1\nw1  ......\n");
}

}  // namespace
}  // namespace penstock::report
