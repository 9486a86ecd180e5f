#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "penstock/model/device/testing_other_device.h"
#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/linear_product.h"
#include "penstock/model/layers/testing_trial.h"
#include "penstock/model/model.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

void expect_shapes_as_inferred(Trial& trial) {
  const std::vector<Shape> shapes = trial.layer->output_shapes(trial.input_shapes);
  const Tensors outputs = trial.run();
  ASSERT_EQ(outputs.size(), shapes.size());
  ASSERT_EQ(static_cast<int>(outputs.size()), trial.layer->num_outputs());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Shape expected = shapes[i];
    expected.insert(expected.begin(), 2);
    EXPECT_EQ(outputs[i].sizes().vec(), expected);
  }
}

void expect_gradients_match_finite_differences(Trial& trial) {
  Tensors leaves = trial.leaves();
  for (at::Tensor& leaf : leaves) leaf.requires_grad_();
  const Tensors gradients = torch::autograd::grad({trial.scalar()}, leaves);

  const c10::AutoGradMode no_grad(false);
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < leaves.size(); ++i) {
    double* numbers = leaves[i].data_ptr<double>();
    const at::Tensor gradient = gradients[i].contiguous();
    for (int64_t k = 0; k < leaves[i].numel(); ++k) {
      const double kept = numbers[k];
      numbers[k] = kept + kStep;
      const double above = trial.scalar().item<double>();
      numbers[k] = kept - kStep;
      const double below = trial.scalar().item<double>();
      numbers[k] = kept;
      ASSERT_NEAR(gradient.data_ptr<double>()[k], (above - below) / (2 * kStep), 1e-5)
          << "tensor " << i << ", number " << k;
    }
  }
}

std::vector<Trial> trials() {
  std::vector<Trial> all;
  all.emplace_back(detail::make_conv2d(2, {.channels = 4, .kernel = 3, .stride = 2, .padding = 1}),
                   std::vector<Shape>{{2, 5, 6}});
  all.emplace_back(detail::make_conv2d(4, {.channels = 2, .kernel = 2, .groups = 2, .bias = false}),
                   std::vector<Shape>{{4, 4, 3}});
  all.emplace_back(
      detail::make_conv2d(2, {.channels = 3, .kernel = 1, .kernel_width = 3, .padding_width = 1}),
      std::vector<Shape>{{2, 3, 5}});
  all.emplace_back(detail::make_stack_logits(2), std::vector<Shape>{{3}, {3}});
  all.emplace_back(detail::make_linear(5, {.features = 3}), std::vector<Shape>{{5}});
  all.emplace_back(detail::make_linear(3, {.features = 2, .bias = false}),
                   std::vector<Shape>{{4, 3}});
  all.emplace_back(detail::make_batch_norm2d(3, {}), std::vector<Shape>{{3, 2, 2}});
  all.emplace_back(detail::make_relu(), std::vector<Shape>{{3, 2}});
  all.emplace_back(detail::make_tanh(), std::vector<Shape>{{7}});
  all.emplace_back(detail::make_max_pool2d({.kernel = 3, .stride = 2, .padding = 1}),
                   std::vector<Shape>{{2, 5, 4}});
  all.emplace_back(detail::make_avg_pool2d({.kernel = 2}), std::vector<Shape>{{2, 5, 4}});
  all.emplace_back(detail::make_adaptive_avg_pool2d(2), std::vector<Shape>{{2, 5, 3}});
  all.emplace_back(detail::make_adaptive_avg_pool2d(4), std::vector<Shape>{{2, 4, 4}});
  all.emplace_back(detail::make_adaptive_avg_pool2d(3), std::vector<Shape>{{1, 1, 1}});
  all.emplace_back(detail::make_flatten(), std::vector<Shape>{{2, 3, 2}});
  all.emplace_back(detail::make_flatten(), std::vector<Shape>{{}});
  all.emplace_back(detail::make_dropout(0.4), std::vector<Shape>{{6, 2}});
  all.emplace_back(detail::make_add(), std::vector<Shape>{{3, 2}, {3, 2}});
  all.emplace_back(detail::make_concat(3), std::vector<Shape>{{3, 2}, {1, 2}, {2, 2}});
  all.emplace_back(detail::make_split(2), std::vector<Shape>{{4, 3}});
  all.emplace_back(detail::make_gelu(), std::vector<Shape>{{3, 2}});
  all.emplace_back(detail::make_embedding({.values = 4, .features = 3}), std::vector<Shape>{{3}}, 2,
                   4);
  all.emplace_back(detail::make_embedding({.values = 4, .features = 3, .dropout = 0.4}),
                   std::vector<Shape>{{3}}, 2, 4);
  all.emplace_back(detail::make_position_embedding(3, 2, Init::normal(1)),
                   std::vector<Shape>{{3, 2}});
  all.emplace_back(detail::make_lstm(3, {.features = 2}), std::vector<Shape>{{3, 3}});
  all.emplace_back(detail::make_lstm(2, {.features = 3}), std::vector<Shape>{{1, 2}});
  all.emplace_back(detail::make_lstm(2, {.features = 2, .weight_dropout = 0.4}),
                   std::vector<Shape>{{4, 2}});
  all.emplace_back(detail::make_embedding({.values = 4, .features = 3, .padding = 3}),
                   std::vector<Shape>{{3}}, 2, 3);
  all.emplace_back(detail::make_pad_places({.before = 1, .behind = 2}), std::vector<Shape>{{3, 2}});
  all.emplace_back(detail::make_cut_places({.before = 1, .behind = 2}), std::vector<Shape>{{5, 2}});
  all.emplace_back(detail::make_frames_to_sheet(2), std::vector<Shape>{{3, 8}});
  all.emplace_back(detail::make_sheet_to_frames(3), std::vector<Shape>{{2, 6, 2}});
  all.emplace_back(detail::make_concat_features(2), std::vector<Shape>{{3, 2}, {3, 1}});
  all.emplace_back(detail::make_reverse_sequence(), std::vector<Shape>{{4, 2}, {4}}, 2, 3);
  all.emplace_back(detail::make_additive_attention(3),
                   std::vector<Shape>{{2, 3}, {4, 3}, {4, 2}, {4}}, 2, 3);
  all.emplace_back(detail::make_locked_dropout(0.4), std::vector<Shape>{{3, 4}});
  all.emplace_back(detail::make_layer_norm(4, {}), std::vector<Shape>{{3, 4}});
  all.emplace_back(detail::make_causal_attention({.heads = 2}), std::vector<Shape>{{3, 12}});
  all.emplace_back(detail::make_causal_attention({.heads = 1, .dropout = 0.3}),
                   std::vector<Shape>{{3, 6}});
  return all;
}

/// Outputs, then the gradients of inputs and weights, of the trial's tensors moved to a device.
Tensors results_on(const Trial& trial, at::Device device) {
  Tensors moved[3];
  const Tensors* sources[] = {&trial.weights, &trial.inputs, &trial.buffers};
  for (size_t i = 0; i < 3; ++i) {
    for (const at::Tensor& tensor : *sources[i])
      moved[i].push_back(tensor.to(device).requires_grad_(i < 2 && tensor.is_floating_point()));
  }
  ForwardContext context = trial.context;
  context.device = device;
  Tensors results = trial.layer->forward(moved[0], moved[2], moved[1], context);
  Tensors leaves = moved[0];
  for (const at::Tensor& input : moved[1])
    if (input.requires_grad()) leaves.push_back(input);
  Tensors ones;
  for (const at::Tensor& result : results) ones.push_back(at::ones_like(result));
  for (at::Tensor& gradient : torch::autograd::grad(results, leaves, ones))
    results.push_back(std::move(gradient));
  return results;
}

std::string text_of_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Layers, ForwardHasTheInferredShapes) {
  for (Trial& trial : trials()) {
    SCOPED_TRACE(trial.layer->kind());
    expect_shapes_as_inferred(trial);
  }
}

TEST(Layers, RunOnOtherDevices) {
  for (const Trial& trial : trials()) {
    SCOPED_TRACE(trial.layer->kind());
    const Tensors expected = results_on(trial, at::kCPU);
    const Tensors found = results_on(trial, other_device());
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].device(), other_device());
      EXPECT_TRUE(at::allclose(found[i].detach().to(at::kCPU), expected[i]));
    }
  }
}

TEST(Layers, GradientsMatchFiniteDifferences) {
  for (Trial& trial : trials()) {
    SCOPED_TRACE(trial.layer->kind());
    expect_gradients_match_finite_differences(trial);
  }
}

TEST(Layers, InferredShapesAgreeWithTheTrialRunOfTheBaseClass) {
  for (const Trial& trial : trials()) {
    SCOPED_TRACE(trial.layer->kind());
    // The base class tries real numbers, in evaluation.
    if (trial.has_tokens() || trial.layer->kind() == "stack_logits") continue;
    EXPECT_EQ(trial.layer->output_shapes(trial.input_shapes),
              trial.layer->Layer::output_shapes(trial.input_shapes));
  }
}

TEST(Layers, InputsAreNeverWritten) {
  for (Trial& trial : trials()) {
    SCOPED_TRACE(trial.layer->kind());
    Tensors copies;
    for (const at::Tensor& input : trial.inputs) copies.push_back(input.clone());
    trial.run();
    for (size_t i = 0; i < copies.size(); ++i) EXPECT_TRUE(at::equal(copies[i], trial.inputs[i]));
  }
}

TEST(Conv2d, MatchesTheDefinition) {
  Trial trial(detail::make_conv2d(2, {.channels = 3, .kernel = 3, .stride = 2, .padding = 1}),
              {{2, 5, 5}});
  const at::Tensor y = trial.run()[0];
  const at::Tensor& x = trial.inputs[0];
  for (int64_t channel = 0; channel < 3; ++channel) {
    double expected = trial.weights[1][channel].item<double>();
    // Output (1, 0): rows 1..3, columns -1..1, of which column -1 is padding.
    for (int64_t c = 0; c < 2; ++c) {
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 1; j < 3; ++j)
          expected += (trial.weights[0][channel][c][i][j] * x[1][c][1 + i][j - 1]).item<double>();
      }
    }
    EXPECT_NEAR(y[1][channel][1][0].item<double>(), expected, 1e-12);
  }
}

TEST(Conv2d, MayBeWiderThanHigh) {
  const detail::LayerPtr layer = detail::make_conv2d(
      2, {.channels = 3, .kernel = 1, .bias = false, .kernel_width = 7, .padding_width = 3});
  EXPECT_EQ(layer->parameters()[0].shape, (Shape{3, 2, 1, 7}));
  EXPECT_EQ(layer->output_shapes({{2, 4, 9}}), (std::vector<Shape>{{3, 4, 9}}));
  Trial trial(layer, {{2, 4, 9}});
  const at::Tensor expected =
      (trial.inputs[0][0].select(1, 2).slice(1, 1, 8) * trial.weights[0][1].select(1, 0)).sum();
  EXPECT_NEAR(trial.run()[0][0][1][2][4].item<double>(), expected.item<double>(), 1e-12);
}

TEST(StackLogits, HasTheAnswerAloneInEvaluation) {
  Trial trial(detail::make_stack_logits(2), {{3}, {3}});
  EXPECT_TRUE(at::equal(trial.run()[0].select(1, 1), trial.inputs[1]));
  trial.context.training = false;
  EXPECT_TRUE(at::equal(trial.run()[0], trial.inputs[0].unsqueeze(1)));
}

TEST(BatchNorm2d, HoldsItsRunningStatisticsBesideItsWeights) {
  EXPECT_EQ(detail::make_batch_norm2d(8, {})->constant_bytes(), 2 * 8 * 4);
}

TEST(BatchNorm2d, NormalisesTheBatchAndUpdatesTheRunningStatistics) {
  Trial trial(detail::make_batch_norm2d(2, {.momentum = 0.25}), {{2, 3, 3}}, 4);
  trial.weights = {at::ones({2}, at::kDouble), at::zeros({2}, at::kDouble)};
  trial.buffers = {at::zeros({2}, at::kDouble), at::ones({2}, at::kDouble)};
  const at::Tensor y = trial.run()[0];
  EXPECT_LT(y.mean({0, 2, 3}).abs().max().item<double>(), 1e-12);
  const at::Tensor mean = trial.inputs[0].mean({0, 2, 3});
  const at::Tensor variance = trial.inputs[0].permute({1, 0, 2, 3}).reshape({2, -1}).var(/*dim=*/1);
  EXPECT_TRUE(at::allclose(trial.buffers[0], 0.25 * mean));
  EXPECT_TRUE(at::allclose(trial.buffers[1], 0.75 + 0.25 * variance));
}

TEST(BatchNorm2d, UsesTheRunningStatisticsOutsideTraining) {
  Trial trial(detail::make_batch_norm2d(1, {}), {{1, 2, 2}});
  trial.context.training = false;
  const at::Tensor mean = trial.buffers[0].clone();
  const at::Tensor expected =
      (trial.inputs[0] - mean) / (trial.buffers[1] + 1e-5).sqrt() * trial.weights[0] +
      trial.weights[1];
  EXPECT_TRUE(at::allclose(trial.run()[0], expected));
  EXPECT_TRUE(at::equal(mean, trial.buffers[0]));
}

TEST(BatchNorm2d, RefusesToTrainOnOneValuePerChannel) {
  Trial trial(detail::make_batch_norm2d(3, {}), {{3, 1, 1}}, 1);
  EXPECT_THROW(trial.run(), RuntimeError);
  trial.context.training = false;
  EXPECT_NO_THROW(trial.run());
}

TEST(Dropout, MaskDependsOnlyOnTheSeed) {
  Trial trial(detail::make_dropout(0.5), {{100}});
  const at::Tensor first = trial.run()[0];
  EXPECT_TRUE(at::equal(first, trial.run()[0]));
  trial.context.seed = 12;
  EXPECT_FALSE(at::equal(first, trial.run()[0]));
}

TEST(Dropout, KeepsTheExpectedShareAndScalesIt) {
  Trial trial(detail::make_dropout(0.25), {{1000}});
  trial.inputs[0].fill_(3);
  const at::Tensor y = trial.run()[0];
  const at::Tensor kept = y.ne(0);
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.75, 0.05);
  EXPECT_TRUE(at::allclose(y, kept.to(at::kDouble) * 4));
}

TEST(Dropout, IsTheIdentityOutsideTraining) {
  Trial trial(detail::make_dropout(0.5), {{100}});
  trial.context.training = false;
  EXPECT_TRUE(at::equal(trial.run()[0], trial.inputs[0]));
}

TEST(PaddedLinear, HasTheValuesAndGradientsOfTheProduct) {
  const auto leaf = [](const Shape& sizes, uint64_t seed) {
    return random(sizes, seed).requires_grad_();
  };
  for (const bool has_bias : {false, true}) {
    const at::Tensor input = leaf({2, 3, 5}, 1);
    const at::Tensor weight = leaf({13, 5}, 2);
    const at::Tensor bias = has_bias ? leaf({13}, 3) : at::Tensor();
    const at::Tensor wanted = at::linear(input, weight, bias);
    const at::Tensor found = detail::padded_linear(input, weight, bias, 8);
    EXPECT_EQ(found.strides(), at::IntArrayRef({48, 16, 1}));
    EXPECT_TRUE(at::allclose(found, wanted));
    const at::Tensor gradient = random({2, 3, 13}, 4);
    Tensors leaves = {input, weight};
    if (has_bias) leaves.push_back(bias);
    const auto expected = torch::autograd::grad({wanted}, leaves, {gradient});
    const auto gradients = torch::autograd::grad({found}, leaves, {gradient});
    for (size_t i = 0; i < leaves.size(); ++i)
      EXPECT_TRUE(at::allclose(gradients[i], expected[i])) << i;
  }
}

TEST(Layers, OptionsOutOfRangeAreNamed) {
  EXPECT_NE(
      text_of_error([] { detail::make_conv2d(3, {.channels = 0, .kernel = 3}); }).find("channels"),
      std::string::npos);
  EXPECT_NE(text_of_error([] {
              detail::make_conv2d(3, {.channels = 4, .kernel = int64_t{1} << 50});
            }).find("kernel"),
            std::string::npos);
  EXPECT_NE(
      text_of_error([] { detail::make_conv2d(3, {.channels = 4, .stride = 0}); }).find("stride"),
      std::string::npos);
  EXPECT_NE(
      text_of_error([] { detail::make_conv2d(3, {.channels = 4, .padding = -1}); }).find("padding"),
      std::string::npos);
  EXPECT_NE(
      text_of_error([] { detail::make_conv2d(3, {.channels = 4, .groups = 2}); }).find("groups"),
      std::string::npos);
  EXPECT_NE(text_of_error([] { detail::make_linear(3, {.features = -5}); }).find("features"),
            std::string::npos);
  EXPECT_NE(
      text_of_error([] { detail::make_max_pool2d({.kernel = 2, .padding = 2}); }).find("padding"),
      std::string::npos);
  EXPECT_NE(text_of_error([] { detail::make_dropout(1.0); }).find("dropout"), std::string::npos);
  EXPECT_NE(text_of_error([] { detail::make_dropout(std::nan("")); }).find("dropout"),
            std::string::npos);
  EXPECT_NE(text_of_error([] { detail::make_batch_norm2d(3, {.epsilon = 0}); }).find("epsilon"),
            std::string::npos);
  EXPECT_NE(text_of_error([] { detail::make_split(0); }).find("parts"), std::string::npos);
  EXPECT_NE(
      text_of_error([] { detail::make_embedding({.values = 0, .features = 2}); }).find("values"),
      std::string::npos);
  EXPECT_NE(text_of_error([] {
              detail::make_embedding({.values = 3, .features = 2, .dropout = 1});
            }).find("dropout"),
            std::string::npos);
  EXPECT_NE(text_of_error([] {
              detail::make_embedding({.values = 3, .features = 2, .padding = 3});
            }).find("padding"),
            std::string::npos);
  EXPECT_NE(text_of_error([] { detail::make_causal_attention({.heads = 0}); }).find("heads"),
            std::string::npos);
  EXPECT_NE(text_of_error([] { detail::make_layer_norm(3, {.epsilon = -1}); }).find("epsilon"),
            std::string::npos);
}

TEST(Layers, ShapesThatDoNotFitAreRefused) {
  EXPECT_THROW(detail::make_conv2d(3, {.channels = 4, .kernel = 5})->output_shapes({{3, 4, 9}}),
               ConfigError);
  EXPECT_THROW(detail::make_conv2d(3, {.channels = 4})->output_shapes({{2, 4, 9}}), ConfigError);
  EXPECT_THROW(detail::make_conv2d(3, {.channels = 4})->output_shapes({{3, 4}}), ConfigError);
  EXPECT_THROW(detail::make_linear(3, {.features = 4})->output_shapes({{4}}), ConfigError);
  EXPECT_THROW(detail::make_batch_norm2d(3, {})->output_shapes({{4, 2, 2}}), ConfigError);
  EXPECT_THROW(detail::make_add()->output_shapes({{4}, {5}}), ConfigError);
  EXPECT_THROW(detail::make_concat(2)->output_shapes({{4, 2}, {4, 3}}), ConfigError);
  EXPECT_THROW(detail::make_stack_logits(2)->output_shapes({{3}, {2}}), ConfigError);
  EXPECT_THROW(detail::make_split(2)->output_shapes({{3, 2}}), ConfigError);
  EXPECT_THROW(detail::make_pad_places({.before = 1})->output_shapes({{4}}), ConfigError);
  EXPECT_THROW(detail::make_cut_places({.before = 4})->output_shapes({{4, 2}}), ConfigError);
  EXPECT_THROW(detail::make_frames_to_sheet(3)->output_shapes({{4, 36}}), ConfigError);
  EXPECT_THROW(detail::make_frames_to_sheet(3)->output_shapes({{4}}), ConfigError);
  EXPECT_THROW(detail::make_sheet_to_frames(4)->output_shapes({{3, 6, 2}}), ConfigError);
  EXPECT_THROW(detail::make_concat_features(2)->output_shapes({{4, 2}, {3, 2}}), ConfigError);
  EXPECT_THROW(detail::make_reverse_sequence()->output_shapes({{4, 2}, {3}}), ConfigError);
  EXPECT_THROW(detail::make_additive_attention(3)->output_shapes({{2, 3}, {4, 3}, {5, 2}, {4}}),
               ConfigError);
  EXPECT_THROW(detail::make_lstm(4, {.features = 2})->output_shapes({{4, 3}}), ConfigError);
  EXPECT_THROW(detail::make_locked_dropout(0.1)->output_shapes({{4}}), ConfigError);
  EXPECT_THROW(detail::make_layer_norm(4, {})->output_shapes({{4, 3}}), ConfigError);
  EXPECT_THROW(detail::make_causal_attention({.heads = 5})->output_shapes({{4, 12}}), ConfigError);
  EXPECT_THROW(detail::make_position_embedding(4, 2, Init::normal(1))->output_shapes({{5, 2}}),
               ConfigError);
}

}  // namespace
}  // namespace penstock::model
