#include "penstock/schedule/timeline.h"

#include <gtest/gtest.h>

namespace penstock::schedule {
namespace {

TimelineEvent event(Op op, int64_t start_ns, int64_t end_ns, int64_t waiting_ns = 0) {
  return {.action = {.op = op}, .start_ns = start_ns, .end_ns = end_ns, .waiting_ns = waiting_ns};
}

}  // namespace

TEST(Timeline, AnEmptyOneHasNoTime) {
  EXPECT_EQ(Timeline{}.makespan_ns(), 0);
  EXPECT_EQ(Timeline{}.idle_share(), 0);
  const Timeline idle{.source = "predicted", .workers = {{}, {}}};
  EXPECT_EQ(idle.makespan_ns(), 0);
  EXPECT_EQ(idle.busy_ns(WorkerId{1}), 0);
  EXPECT_EQ(idle.idle_share(), 0);
}

TEST(Timeline, CountsComputeSyncAndStepWithoutWaitingAsBusy) {
  const Timeline timeline{
      .source = "measured",
      .workers = {{event(Op::Forward, 100, 110), event(Op::SendForward, 110, 115),
                   event(Op::Backward, 140, 160)},
                  {event(Op::RecvForward, 100, 115, 15), event(Op::Forward, 115, 125),
                   event(Op::SyncGradients, 130, 150, 12), event(Op::Step, 150, 152),
                   event(Op::FreeWeights, 152, 153)}}};
  EXPECT_EQ(timeline.makespan_ns(), 60);
  EXPECT_EQ(timeline.busy_ns(WorkerId{0}), 30);
  EXPECT_EQ(timeline.busy_ns(WorkerId{1}), 20);
  EXPECT_DOUBLE_EQ(timeline.idle_share(), 1.0 - 50.0 / 120.0);
}

}  // namespace penstock::schedule
