#include <gtest/gtest.h>

#include <sstream>

#include "penstock/report/report.h"
#include "penstock/schedule/generate.h"
#include "penstock/util/error.h"

namespace penstock::report {
namespace {

using schedule::Kind;
using schedule::Op;

schedule::Schedule generated(Kind kind, std::vector<int> replicas, int64_t micro_batches, int64_t accumulate) {
  return generate(
      kind, {.replicas = std::move(replicas), .micro_batches = micro_batches, .accumulate = accumulate, .policy = default_policy(kind)});
}

TEST(TextGrid, DrawsGPipe) {
  EXPECT_EQ(text_grid(generated(Kind::GPipe, {1, 1, 1}, 3, 3)), &R"(
w0  F0 F1 F2 ..................B0--- B1--- B2---
w1  ...F0 F1 F2 .........B0--- B1--- B2--- ......
w2  ......F0 F1 F2 B0--- B1--- B2--- ............
)"[1]);
}

TEST(TextGrid, DrawsOneFOneB) {
  EXPECT_EQ(text_grid(generated(Kind::OneFOneB, {1, 1}, 4, 1)), &R"(
w0  F0 F1 ......B0--- F2 B1--- F3 B2--- ...B3---
w1  ...F0 B0--- F1 B1--- F2 B2--- F3 B3--- ......
)"[1]);
}

TEST(TextGrid, NeverPassesItsWidth) {
  for (const int width : {20, 33, 80, 120}) {
    std::istringstream lines(text_grid(generated(Kind::OneFOneB, {2, 1, 1}, 1000, 2), width));
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
  const schedule::Timeline timeline{"measured", {{{forward, 100, 200, 0}, {sync, 200, 500, 100}, {step, 500, 600, 0}}}};
  EXPECT_EQ(text_grid(timeline), "w0  F0 ...======+++\n");
}

TEST(TextGrid, EmptyTimelinesAndEnormousTimesAreDrawn) {
  EXPECT_EQ(text_grid(schedule::Timeline{}), "");
  EXPECT_EQ(text_grid(schedule::Timeline{"x", {{}, {}}}), "w0\nw1\n");
  const schedule::Timeline timeline{"x", {{{{.op = Op::Forward}, 0, 1, 0}, {{.op = Op::Backward}, INT64_MAX - 10, INT64_MAX, 0}}}};
  EXPECT_EQ(text_grid(timeline, 20), "w0  F0 ............>\n");
}

TEST(TextGrid, DamagedSchedulesAreDrawnAsFarAsTheyGo) {
  schedule::Schedule schedule = generated(Kind::OneFOneB, {1, 1}, 4, 1);
  schedule.workers[1].clear();
  EXPECT_EQ(text_grid(schedule), "w0  F0 F1\nw1  ......\n");
}

}  // namespace
}  // namespace penstock::report
