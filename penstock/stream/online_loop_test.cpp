#include "penstock/stream/online_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/frames/testing_frames.h"
#include "penstock/plan/boundaries.h"
#include "penstock/stream/testing_stream.h"

namespace penstock::stream::testing {
namespace {

StreamSummary learn(frames::Task task, int stages, int64_t frames,
                    const std::function<void(StreamOptions&)>& change = {},
                    const std::string& weights = "") {
  const model::Model model = model_for(task);
  const auto queue = generated(frames);
  StreamOptions options{
      .task = task, .plan = plan_of(model, stages, weights), .learning_rate = 0.05};
  if (change) change(options);
  OnlineLoop loop(model, *queue, std::move(options));
  return loop.run();
}

TEST(OnlineLoop, LearnsEveryTaskWithEveryNumberOfStages) {
  for (const frames::Task task : frames::kTasks) {
    for (const int stages : {1, 2, 4}) {
      SCOPED_TRACE(std::string(to_string(task)) + ", stages " + std::to_string(stages));
      const StreamSummary summary = learn(task, stages, 40);
      const int64_t frames = task == frames::Task::Predict ? 39 : 40;
      EXPECT_EQ(summary.numbers.processed, frames);
      EXPECT_EQ(summary.state.steps, frames);
      // What is predicted last is what the next prediction begins with.
      EXPECT_EQ(summary.state.next_frame, frames);
      EXPECT_EQ(summary.queue.dropped, 0);
      EXPECT_FALSE(summary.end.is_error) << summary.end.reason;
      EXPECT_EQ(summary.numbers.losses.hits.labels > 0, needs_labels(task));
    }
  }
}

/// Whatever it keeps of weights, and whatever it takes for matrices among them.
TEST(OnlineLoop, LearnsWithEveryOptimiser) {
  for (const model::OptimizerTraits& row : model::kOptimizers) {
    const StreamSummary summary =
        learn(frames::Task::Reconstruct, 2, 10, [&](StreamOptions& options) {
          options.optimizer = model::usual_spec(row.kind);
          options.learning_rate = 1e-3;
        });
    EXPECT_EQ(summary.state.steps, 10) << row.name << ": " << summary.end.reason;
  }
}

TEST(OnlineLoop, LossFallsOnAMovingScene) {
  for (const int stages : {1, 4}) {
    std::vector<double> losses;
    learn(frames::Task::Pixels, stages, 600, [&](StreamOptions& options) {
      options.between_looks = std::chrono::milliseconds(20);
      options.on_look = [&](const StreamLook& look) {
        if (look.part.processed > 0) losses.push_back(look.part.losses.mean());
      };
    });
    ASSERT_GE(losses.size(), 2U);
    EXPECT_LT(losses.back(), 0.9 * losses.front()) << stages;
  }
}

TEST(OnlineLoop, RepeatsBitForBitWhateverTheTimes) {
  for (const std::string weights : {"current", "latest", "stash"}) {
    const StreamSummary a = learn(frames::Task::Reconstruct, 3, 30, {}, weights);
    const StreamSummary b = learn(frames::Task::Reconstruct, 3, 30, {}, weights);
    EXPECT_EQ(difference(a.state, b.state), 0) << weights;
  }
}

TEST(OnlineLoop, GoesOnFromAStateAsIfItHadNotEnded) {
  // One stage has no frames under way when it ends, so nothing differs.
  const StreamSummary whole = learn(frames::Task::Reconstruct, 1, 30);
  const model::Model model = model_for(frames::Task::Reconstruct);
  const auto queue = generated(30);
  OnlineLoop first(model, *queue,
                   {.plan = plan_of(model, 1), .learning_rate = 0.05, .max_frames = 11});
  StreamSummary half = first.run();
  EXPECT_EQ(half.state.steps, 11);
  OnlineLoop second(
      model, *queue,
      {.plan = plan_of(model, 1), .learning_rate = 0.05, .state = std::move(half.state)});
  const StreamSummary rest = second.run();
  EXPECT_EQ(rest.state.steps, 30);
  EXPECT_EQ(difference(whole.state, rest.state), 0);
}

TEST(OnlineLoop, SavesAConsistentStateWithoutStopping) {
  // The copies are those of a stream that ends after as many frames; under `current` the last
  // frames see other gradients at a stream's end, so the policy is one that does not.
  const model::Model model = model_for(frames::Task::Reconstruct);
  const auto [summary, saved] =
      run_and_save(model, 400, {.plan = plan_of(model, 3, "stash"), .learning_rate = 0.05});
  EXPECT_EQ(summary.numbers.processed, 400);
  ASSERT_TRUE(saved.has_value());
  EXPECT_GT(saved->steps, 20);
  EXPECT_EQ(saved->next_frame, saved->steps);
  ASSERT_LT(saved->steps, 400);
  const StreamSummary replay = learn(
      frames::Task::Reconstruct, 3, 400,
      [&, steps = saved->steps](StreamOptions& options) { options.max_frames = steps; }, "stash");
  EXPECT_EQ(difference(replay.state, *saved), 0);
}

TEST(OnlineLoop, ChangesThePlanWithoutLosingWeightsOrFrames) {
  int64_t asked = 0;
  const StreamSummary summary =
      learn(frames::Task::Reconstruct, 2, 500, [&](StreamOptions& options) {
        options.between_looks = std::chrono::milliseconds(20);
        options.replan = [&](const StreamLook&,
                             const plan::Plan& now) -> std::optional<plan::Plan> {
          if (++asked > 2) return std::nullopt;
          return plan_of(model_for(frames::Task::Reconstruct), now.stages.size() == 2 ? 3 : 4);
        };
      });
  EXPECT_EQ(summary.replans, 2);
  EXPECT_EQ(summary.numbers.processed, 500);
  EXPECT_EQ(summary.state.steps, 500);
  EXPECT_EQ(summary.state.plan.stages.size(), 4U);
}

TEST(OnlineLoop, EndsWithTheReasonOfABrokenSourceAndKeepsTheWeights) {
  const model::Model model = model::make_model({.name = "partime",
                                                .input_shape = {1, 1, 1},
                                                .classes = 1,
                                                .width = 2,
                                                .depth = 3,
                                                .kernel = 1,
                                                .per_pixel = true});
  frames::FrameQueue queue(std::make_unique<frames::ScriptedSource>(frames::ScriptedSource::Script{
                               .frames = 7, .error = "the cable is out"}),
                           {.waits_when_full = true});
  OnlineLoop loop(model, queue, {.plan = plan_of(model, 2)});
  const StreamSummary summary = loop.run();
  EXPECT_TRUE(summary.end.is_error);
  EXPECT_NE(summary.end.reason.find("the cable is out"), std::string::npos);
  EXPECT_EQ(summary.state.steps, 7);
}

TEST(OnlineLoop, StopsWhenItIsTold) {
  std::atomic<bool> stop{false};
  const StreamSummary summary = learn(frames::Task::Reconstruct, 2, 0, [&](StreamOptions& options) {
    options.stop = &stop;
    options.between_looks = std::chrono::milliseconds(10);
    options.on_look = [&](const StreamLook& look) {
      if (look.whole.processed > 10) stop = true;
    };
  });
  EXPECT_GT(summary.numbers.processed, 10);
  EXPECT_EQ(summary.end.reason, "stopped");
}

TEST(OnlineLoop, AFailureOfTheWatchingThreadEndsTheStream) {
  EXPECT_THROW(learn(frames::Task::Reconstruct, 2, 0,
                     [](StreamOptions& options) {
                       options.between_looks = std::chrono::milliseconds(5);
                       options.on_look = [](const StreamLook&) { throw RuntimeError("full disk"); };
                     }),
               RuntimeError);
}

TEST(OnlineLoop, EndsWhenTheTrainingDiverges) {
  try {
    learn(frames::Task::Reconstruct, 2, 3000,
          [](StreamOptions& options) { options.learning_rate = 1e6; });
    FAIL();
  } catch (const RuntimeError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("take a smaller learning rate"));
    EXPECT_THAT(
        error.what(),
        ::testing::MatchesRegex("worker 1 \\(stage 1\\) failed in the forward pass of micro-batch "
                                "[0-9]+ \\(1F[0-9]+@[0-9]+\\): .* of frame [0-9]+ is "
                                "(nan|inf|-inf): .*"));
  }
}

TEST(OnlineLoop, RefusesModelsThatDoNotFitTheTask) {
  const model::Model model = model_for(frames::Task::Reconstruct);
  const auto queue = generated(10);
  EXPECT_THROW(OnlineLoop(model, *queue, {.task = frames::Task::Pixels, .plan = plan_of(model, 2)}),
               ConfigError);
  plan::Plan flushing = plan_of(model, 2);
  flushing.strategy = plan::Strategy::GPipe;
  EXPECT_THROW(OnlineLoop(model, *queue, {.plan = flushing}), ConfigError);
}

TEST(OnlineLoop, RefusesPlansWhoseMessagesAreCoded) {
  const model::Model model = model_for(frames::Task::Reconstruct);
  const auto queue = generated(10);
  plan::Plan coded = plan_of(model, 2);
  coded.links = {{StageId{0}, StageId{1}}};
  EXPECT_NO_THROW(OnlineLoop(model, *queue, {.plan = coded}));
  plan::set_boundaries(coded, plan::parse_boundary("int8"));
  EXPECT_THROW(OnlineLoop(model, *queue, {.plan = coded}), ConfigError);
}

}  // namespace
}  // namespace penstock::stream::testing
