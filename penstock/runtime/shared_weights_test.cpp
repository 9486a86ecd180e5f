// Replicas with one copy of their weights in memory (PipelineOptions::flushes) train as those that
// have a copy each, bit for bit: losses, weights and the optimiser's state.
#include <gtest/gtest.h>

#include "penstock/runtime/gradient_board.h"
#include "penstock/runtime/test_support.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;

std::vector<Case> flushing_cases() {
  return {
      {.kind = Strategy::DataParallel, .replicas = {2}, .parts = 2},
      {.kind = Strategy::DataParallel, .replicas = {3}, .parts = 3, .optimizer = gentle_adam()},
      // Each replica sums over several micro-batches.
      {.kind = Strategy::DataParallel, .replicas = {2}, .parts = 6},
      // Some have no micro-batch of the last mini-batch.
      {.kind = Strategy::DataParallel, .replicas = {4}, .parts = 4, .samples = 12 * 3 + 2},
      // Several groups each, whose sums have to be whole.
      {.kind = Strategy::DataParallel, .replicas = {2}, .parts = 12, .groups = 12},
      {.kind = Strategy::DataParallel,
       .replicas = {2},
       .parts = 2,
       .gradient_precision = FloatType::BFloat16},
      {.kind = Strategy::GPipe, .replicas = {2, 2}, .parts = 4, .recompute = {true, false}},
      {.kind = Strategy::GPipe, .replicas = {2, 2}, .parts = 4, .norm = true, .max_grad_norm = 0.5},
      {.kind = Strategy::OneFOneBFlush, .replicas = {3, 1}, .parts = 6},
      {.kind = Strategy::ZbH1, .replicas = {2, 2}, .parts = 4}};
}

void expect_same_states(const Trained& a, const Trained& b) {
  for (size_t l = 0; l < a.layers.size(); ++l) {
    for (size_t s = 0; s < a.layers[l].optimizer_state.size(); ++s) {
      for (size_t w = 0; w < a.layers[l].optimizer_state[s].size(); ++w)
        EXPECT_TRUE(a.layers[l].optimizer_state[s][w].equal(b.layers[l].optimizer_state[s][w]))
            << "layer " << l << " state " << s << " weight " << w;
    }
  }
}

TEST(SharedWeights, TrainAsCopiesBitForBit) {
  const model::Model model = skip_model(0.1);
  for (Case setup : flushing_cases()) {
    SCOPED_TRACE(std::string(to_string(setup.kind)) + ", " + std::to_string(setup.parts));
    const Trained expected = train(model, setup);
    setup.flushes = true;
    const Trained found = train(model, setup);
    expect_same_bits(found, expected);
    expect_same_states(found, expected);
  }
}

TEST(SharedWeights, AreRefusedWhereTheRunDoesNotFlush) {
  Case setup{.kind = Strategy::OneFOneB,
             .replicas = {2, 1},
             .policy = schedule::WeightPolicy::Stash,
             .parts = 2};
  setup.flushes = true;
  EXPECT_THROW(train(skip_model(), setup), ConfigError);
}

TEST(GradientBoard, HandsOutAWeightThatAllHaveGiven) {
  // Replica 0 has all of weight 0, and each half of weight 1.
  GradientBoard board({{{0, 4}, {0, 2}}, {{0, 0}, {2, 2}}});
  board.give(0, 1, at::ones({4}));
  EXPECT_FALSE(board.next(0));
  board.give(1, 0, at::Tensor());
  board.give(0, 0, at::ones({4}));
  const auto first = board.next(0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->first, 0u);
  EXPECT_TRUE(first->second[0].defined());
  EXPECT_FALSE(first->second[1].defined());
  board.done(0);
  EXPECT_FALSE(board.next(1)) << "of weight 0 it has nothing, and weight 1 is not complete";
  board.give(1, 1, at::ones({4}));
  EXPECT_EQ(board.next(0)->first, 1u);
  EXPECT_EQ(board.next(1)->first, 1u);
}

TEST(GradientBoard, FreesWhatAllHaveDoneWith) {
  GradientBoard board({{{0, 2}}, {{2, 2}}});
  const at::Tensor gradient = at::ones({4});
  board.give(0, 0, gradient);
  board.give(1, 0, at::ones({4}));
  board.next(0);
  board.next(1);
  board.done(0);
  EXPECT_GT(gradient.use_count(), 1u);
  board.done(0);
  EXPECT_EQ(gradient.use_count(), 1u);
}

}  // namespace
}  // namespace penstock::runtime::testing
