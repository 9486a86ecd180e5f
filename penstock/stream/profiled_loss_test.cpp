#include "penstock/stream/profiled_loss.h"

#include <gtest/gtest.h>

#include "penstock/stream/testing_stream.h"

namespace penstock::stream {
namespace {

TEST(ProfiledLoss, OfEveryTaskIsPartOfTheLastLayerOnly) {
  const frames::FrameKind kind{.channels = testing::kSmall.channels, .classes = testing::kClasses};
  for (const frames::Task task : frames::kTasks) {
    SCOPED_TRACE(to_string(task));
    const model::Model model = testing::model_for(task);
    const profile::Profile profile =
        model::measure_profile(model, {.batch_size = 1, .warmup = 1, .samples = 3},
                               profiled_loss(task, kind, testing::kSmall, 1));
    EXPECT_NO_THROW(profile::validate(profile));
    const profile::LayerCost& last = profile.costs[model.graph().outputs().front().layer.index()];
    EXPECT_GT(last.loss_ns, 0);
    EXPECT_LT(last.loss_ns, last.forward_ns + last.backward_ns);
    for (const profile::LayerCost& cost : profile.costs) {
      if (&cost == &last) continue;
      EXPECT_EQ(cost.loss_ns, 0);
    }
  }
}

TEST(ProfiledLoss, OfEqualSeedsHasEqualTargets) {
  const auto targets = [](uint64_t seed) {
    return profiled_loss(frames::Task::Pixels, {.channels = 1, .classes = 4}, {8, 6, 1}, seed)
        .targets;
  };
  EXPECT_TRUE(targets(1).equal(targets(1)));
  EXPECT_FALSE(targets(1).equal(targets(2)));
}

}  // namespace
}  // namespace penstock::stream
