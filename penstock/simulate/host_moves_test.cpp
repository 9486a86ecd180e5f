#include "penstock/simulate/host_moves.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/simulate/simulator.h"

namespace penstock::simulate {
namespace {

/// One stage; F takes 10, B 20, a move `move_ns` each way.
schedule::Timeline timeline_of(const std::string& list, int64_t micro_batches, int64_t move_ns) {
  const schedule::Schedule schedule = schedule::parse_schedule(
      fmt::format("# penstock schedule 1\n# replicas: 1\n# micro-batches: {}  accumulate: {}  "
                  "weights: flush\n# offload: 0\n# lowered: yes\n{}\n",
                  micro_batches, micro_batches, list),
      "test");
  Costs costs;
  costs.stages = {{.forward_ns = 10, .backward_ns = 20, .move_ns = move_ns}};
  return simulate(schedule, costs, {.keep_timeline = true}).timeline;
}

/// When the action ends, and how long it has waited.
std::pair<int64_t, int64_t> end_and_wait(const schedule::Timeline& timeline,
                                         const std::string& action) {
  for (const schedule::TimelineEvent& event : timeline.workers[0]) {
    if (schedule::to_text(event.action) == action) return {event.end_ns, event.waiting_ns};
  }
  return {-1, -1};
}

using Pair = std::pair<int64_t, int64_t>;

}  // namespace

TEST(HostMoves, ShortOnesAreHiddenBehindComputation) {
  const schedule::Timeline timeline =
      timeline_of("0F0@0,0OFFLOAD0,0F1@0,0LOAD0,0F2@0,0B0@0,0B1@0,0B2@0", 3, 10);
  EXPECT_EQ(end_and_wait(timeline, "0OFFLOAD0"), Pair(10, 0));
  EXPECT_EQ(end_and_wait(timeline, "0LOAD0"), Pair(20, 0));
  EXPECT_EQ(end_and_wait(timeline, "0B0@0"), Pair(50, 0));
}

TEST(HostMoves, TheBackwardPassWaitsForWhatComesBackLate) {
  // Out from 10 to 25, back from 25 to 40, while F2 ends at 30.
  const schedule::Timeline timeline =
      timeline_of("0F0@0,0OFFLOAD0,0F1@0,0LOAD0,0F2@0,0B0@0,0B1@0,0B2@0", 3, 15);
  EXPECT_EQ(end_and_wait(timeline, "0LOAD0"), Pair(20, 0));
  EXPECT_EQ(end_and_wait(timeline, "0B0@0"), Pair(60, 10));
  EXPECT_EQ(end_and_wait(timeline, "0B1@0"), Pair(80, 0));
}

TEST(HostMoves, AnOffloadWaitsForTheOneBefore) {
  // The first is under way from 10 to 60; the second begins then and arrives at 110. The loads
  // follow each other: 0 from 70 to 120 (F2 has ended), 1 until 170.
  const schedule::Timeline timeline =
      timeline_of("0F0@0,0OFFLOAD0,0F1@0,0OFFLOAD1,0F2@0,0LOAD0,0LOAD1,0B2@0,0B0@0,0B1@0", 3, 50);
  EXPECT_EQ(end_and_wait(timeline, "0OFFLOAD1"), Pair(60, 40));
  EXPECT_EQ(end_and_wait(timeline, "0B2@0"), Pair(90, 0));
  EXPECT_EQ(end_and_wait(timeline, "0B0@0"), Pair(140, 30));
  EXPECT_EQ(end_and_wait(timeline, "0B1@0"), Pair(190, 30));
}

}  // namespace penstock::simulate
