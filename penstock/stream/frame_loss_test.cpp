#include "penstock/stream/frame_loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "penstock/stream/frame_tensors.h"
#include "penstock/util/error.h"

namespace penstock::stream {
namespace {

TEST(FrameLoss, OfPixelsIsTheMeanOverThoseWithALabel) {
  FrameLoss loss(frames::Task::Pixels, {.channels = 1, .classes = 2});
  at::Tensor output = at::zeros({1, 3, 2, 2});
  output[0][1][0][0] = 4.0F;  // class 1
  output.requires_grad_(true);
  at::Tensor targets = at::full({1, 2, 2}, model::kNoTarget, at::kLong);
  targets[0][0][0] = 1;
  targets[0][1][1] = 0;
  const model::LossResult result = loss(output, targets, {});
  const double expected = (std::log1p(std::exp(-4.0)) + std::log(2.0)) / 2;
  EXPECT_NEAR(result.loss_sum, expected, 1e-6);
  result.scaled_loss.backward();
  EXPECT_EQ(output.grad()[0][0][0][1].item<float>(), 0) << "no label, no gradient";
  EXPECT_NEAR(output.grad()[0][0][1][1].item<float>(), -0.25, 1e-6);
  const Losses losses = loss.take(0, result.loss_sum, result.correct);
  EXPECT_EQ(losses.frames, 1);
  EXPECT_NEAR(losses.sum, expected, 1e-6);
  EXPECT_EQ(losses.hits.labels, 2);
  EXPECT_EQ(losses.hits.hits, 2);
}

TEST(FrameLoss, OfPixelsRebuildsFramesWithoutLabels) {
  FrameLoss loss(frames::Task::Pixels, {.channels = 1, .classes = 2});
  const at::Tensor output = at::zeros({1, 3, 2, 2}).requires_grad_(true);
  const model::LossResult result = loss(output, at::full({1, 1, 2, 2}, 0.5), {});
  EXPECT_NEAR(result.loss_sum, 0.25, 1e-6);
  result.scaled_loss.backward();
  EXPECT_EQ(output.grad().slice(1, 0, 2).abs().max().item<float>(), 0);
  EXPECT_NEAR(output.grad()[0][2][0][0].item<float>(), -0.25, 1e-6);
  const Losses losses = loss.take(0, result.loss_sum, result.correct);
  EXPECT_EQ(losses.frames, 0) << "rebuilding is a loss of its own";
  EXPECT_EQ(losses.rebuilt, 1);
  EXPECT_NEAR(losses.rebuilt_sum, 0.25, 1e-6);
}

TEST(FrameLoss, WithoutATargetNothingIsLearned) {
  FrameLoss loss(frames::Task::Label, {.channels = 1, .classes = 3});
  const at::Tensor output = at::ones({1, 3}).requires_grad_(true);
  const model::LossResult result = loss(output, {}, {});
  EXPECT_EQ(result.loss_sum, 0);
  result.scaled_loss.backward();
  EXPECT_EQ(output.grad().abs().max().item<float>(), 0);
  EXPECT_EQ(loss.take(0, 0, 0).frames, 0);
}

TEST(FrameLoss, OfAFrameIsTheMeanSquaredError) {
  FrameLoss loss(frames::Task::Reconstruct, {.channels = 3});
  const model::LossResult result =
      loss(at::full({1, 3, 4, 4}, 0.25), at::full({1, 3, 4, 4}, -0.25), {});
  EXPECT_NEAR(result.loss_sum, 0.25, 1e-6);
}

TEST(FrameLoss, OfPredictedFramesStandsBesideThatOfCopyingTheLast) {
  FrameLoss loss(frames::Task::Predict, {.channels = 1});
  at::Tensor frame = at::full({1, 1, 2, 2}, 0.25);
  const auto learn = [&](int64_t number) {
    const model::LossResult result = loss(at::zeros({1, 1, 2, 2}), frame, {});
    return loss.take(number, result.loss_sum, result.correct);
  };
  EXPECT_EQ(learn(1).copied, 0) << "no frame before it";
  frame.fill_(0.75);  // a feed uses its tensors again
  const Losses second = learn(2);
  EXPECT_EQ(second.copied, 1);
  EXPECT_NEAR(second.copied_mean(), 0.25, 1e-6);
  EXPECT_NEAR(second.mean(), 0.5625, 1e-6);
  Losses both = second;
  both += learn(3);
  EXPECT_NEAR(both.copied_mean(), 0.125, 1e-6);
  FrameLoss own(frames::Task::Reconstruct, {.channels = 1});
  own(frame, frame, {});
  own(frame, frame, {});
  own.take(0, 0, 0);
  EXPECT_EQ(own.take(1, 0, 0).copied, 0);
}

TEST(FrameLoss, ShowsTheOutputOnceSomebodyLooks) {
  FrameLoss loss(frames::Task::Reconstruct, {.channels = 1});
  const at::Tensor frame = at::full({1, 1, 2, 3}, 0.5);
  loss(frame, frame, {});
  loss.take(6, 0, 0);
  EXPECT_TRUE(loss.newest().pixels.empty());
  loss(frame, frame, {});
  EXPECT_TRUE(loss.newest().pixels.empty()) << "whose picture it is, is not known yet";
  loss.take(7, 0, 0);
  const FrameLoss::Picture picture = loss.newest();
  EXPECT_EQ(picture.frame, 7);
  EXPECT_EQ(picture.height, 2);
  EXPECT_EQ(picture.width, 3);
  EXPECT_EQ(picture.pixels, std::vector<uint8_t>(6, 255));
}

TEST(FrameLoss, ShowsClassesInTheirColours) {
  FrameLoss loss(frames::Task::Pixels, {.channels = 1, .classes = 3});
  EXPECT_TRUE(loss.newest().pixels.empty());
  at::Tensor output = at::zeros({1, 4, 1, 2});
  output[0][2][0][0] = 1;
  output[0][0][0][1] = 1;
  loss(output, at::zeros({1, 1, 2}, at::kLong), {});
  loss.take(3, 0, 0);
  const FrameLoss::Picture picture = loss.newest();
  EXPECT_EQ(picture.channels, 3);
  std::vector<uint8_t> expected;
  for (const int cls : {2, 0}) {
    const auto colour = class_colour(cls);
    expected.insert(expected.end(), colour.begin(), colour.end());
  }
  EXPECT_EQ(picture.pixels, expected);
}

TEST(FrameLoss, EveryClassHasAColourOfItsOwn) {
  std::set<std::array<uint8_t, 3>> colours;
  for (int cls = 0; cls < 25; ++cls) colours.insert(class_colour(cls));
  EXPECT_EQ(colours.size(), 25U);
}

TEST(FrameTensors, KeepBrightnessAndOrderOfChannels) {
  frames::Frame frame;
  frame.size = {2, 1, frames::kRgb};
  frame.pixels = {0, 128, 255, 10, 20, 30};
  at::Tensor tensor;
  to_tensor(frame, tensor);
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({1, 3, 1, 2}));
  EXPECT_FLOAT_EQ(tensor[0][0][0][0].item<float>(), -0.5F);
  EXPECT_FLOAT_EQ(tensor[0][2][0][0].item<float>(), 0.5F);
  EXPECT_EQ(to_pixels(tensor, 0, 3), frame.pixels);
}

TEST(FrameTensors, DoNotOverwriteWhatSomebodyHolds) {
  frames::Frame frame;
  frame.size = {1, 1, frames::kGrey};
  frame.pixels = {255};
  at::Tensor tensor;
  to_tensor(frame, tensor);
  const void* const first = tensor.data_ptr();
  frame.pixels = {0};
  to_tensor(frame, tensor);
  EXPECT_EQ(tensor.data_ptr(), first) << "memory goes round";
  const at::Tensor held = tensor;
  frame.pixels = {255};
  to_tensor(frame, tensor);
  EXPECT_FLOAT_EQ(held.item<float>(), -0.5F);
}

TEST(FrameTensors, OfLabelsGoRoundToo) {
  frames::Frame frame;
  frame.size = {2, 1, frames::kGrey};
  frame.pixel_labels = {3, frames::kUnlabelled};
  at::Tensor targets;
  EXPECT_TRUE(to_targets(frame, 4, targets));
  EXPECT_TRUE(targets.equal(at::tensor(std::vector<int64_t>{3, model::kNoTarget}).view({1, 1, 2})));
  const void* const first = targets.data_ptr();
  frame.pixel_labels = {frames::kUnlabelled, frames::kUnlabelled};
  EXPECT_FALSE(to_targets(frame, 4, targets));
  frame.pixel_labels = {frames::kUnlabelled, 0};
  EXPECT_TRUE(to_targets(frame, 4, targets));
  EXPECT_EQ(targets.data_ptr(), first) << "memory goes round";
}

TEST(FrameTensors, RefuseClassesThatDoNotExist) {
  frames::Frame frame;
  frame.size = {1, 1, frames::kGrey};
  frame.number = 12;
  frame.pixel_labels = {7};
  try {
    at::Tensor targets;
    to_targets(frame, 4, targets);
    FAIL();
  } catch (const RuntimeError& error) {
    EXPECT_STREQ(error.what(), "frame 12 has a pixel of class 7, but there are 4 classes");
  }
}

}  // namespace
}  // namespace penstock::stream
