#include <ATen/ops/batch_norm.h>
#include <ATen/ops/layer_norm.h>
#include <fmt/format.h>

#include "penstock/model/batch_limits.h"
#include "penstock/model/float32_layers.h"
#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

/// weight, bias [channels]; buffers running_mean, running_var [channels], updated in training.
class BatchNorm2d final : public BuiltinLayer, public KeepsFloat32, public LimitsBatches {
 public:
  BatchNorm2d(int64_t channels, BatchNormOptions options)
      : channels_(channels), options_(std::move(options)) {}

  std::string kind() const override { return "batch_norm2d"; }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {channels_}, Init::constant(1)}, {"bias", {channels_}, Init::constant(0)}};
  }
  std::vector<ParameterSpec> buffers() const override {
    return {{"running_mean", {channels_}, Init::constant(0)},
            {"running_var", {channels_}, Init::constant(1)}};
  }

  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    const Shape& in = expect_image(inputs);
    if (in[0] != channels_)
      throw ConfigError(
          fmt::format("expected {} channels, found shape {}", channels_, shape_text(in)));
    return {in};
  }

  std::string why_not(int64_t samples, const std::vector<Shape>& outputs) const override {
    return batch_numbers(outputs, samples) > channels_ ? "" : kOneNumberPerChannel;
  }

  /// The input's gradient needs the sums that are the weights' gradients.
  bool weight_gradients_can_wait() const override { return false; }

  /// Forward reads the input for its mean and variance, reads it again and writes; backward reads
  /// input and gradient for the sums, which are the weights' gradients, reads both again and
  /// writes.
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return {.forward = {normalization({numbers, numbers, numbers})},
            .backward_weights = {normalization({numbers, numbers})},
            .backward_inputs = {normalization({numbers, numbers, numbers})},
            // and each channel's statistics
            .stash_bytes = saturating_add(tensor_bytes(numbers), 2 * tensor_bytes(channels_)),
            .saves_outputs = false};
  }

  Tensors forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs,
                  const ForwardContext& context) const override {
    const at::Tensor& x = inputs[0];
    // With one value per channel the variance is 0 / 0, and it would stay in the running statistics
    // forever.
    if (context.training && x.numel() <= channels_) {
      throw RuntimeError(
          fmt::format("{}; use a larger (micro-)batch or input", kOneNumberPerChannel));
    }
    return {at::batch_norm(x, weights[0], weights[1], buffers[0], buffers[1], context.training,
                           options_.momentum, options_.epsilon,
                           /*cudnn_enabled=*/true)};
  }

 private:
  int64_t channels_;
  BatchNormOptions options_;
};

/// Of the last dimension (Ba, Kiros, Hinton 2016). weight, bias [features]
class LayerNorm final : public BuiltinLayer, public KeepsFloat32 {
 public:
  LayerNorm(int64_t features, LayerNormOptions options)
      : features_(features), options_(std::move(options)) {}

  std::string kind() const override { return "layer_norm"; }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {features_}, Init::constant(1)}, {"bias", {features_}, Init::constant(0)}};
  }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].empty() || inputs[0].back() != features_) {
      throw ConfigError(fmt::format("expected {} input features, found shape {}", features_,
                                    shape_text(inputs[0])));
    }
    return inputs;
  }

  /// One operation makes the gradients of input and weights.
  bool weight_gradients_can_wait() const override { return false; }

  /// A row is read for its mean and variance, stays in a cache, and is written; backward reads it
  /// and its gradient for the sums of the row, then of the weights.
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    const int64_t rows = numbers / features_;
    return {.forward = {normalization({numbers, numbers})},
            .backward_weights = {normalization({numbers, numbers})},
            .backward_inputs = {normalization({numbers, numbers, numbers})},
            // and each row's mean and deviation
            .stash_bytes = saturating_add(tensor_bytes(numbers), 2 * tensor_bytes(rows)),
            .saves_outputs = false};
  }

  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {at::layer_norm(inputs[0], {features_}, weights[0], weights[1], options_.epsilon)};
  }

 private:
  int64_t features_;
  LayerNormOptions options_;
};

void check_epsilon(double epsilon) {
  if (!(epsilon > 0)) throw ConfigError(fmt::format("epsilon must be positive, found {}", epsilon));
}

}  // namespace

LayerPtr make_layer_norm(int64_t features, const LayerNormOptions& options) {
  check_range(features, 1, kMaxElements, "features");
  check_epsilon(options.epsilon);
  return std::make_shared<LayerNorm>(features, options);
}

LayerPtr make_batch_norm2d(int64_t channels, const BatchNormOptions& options) {
  check_epsilon(options.epsilon);
  if (!(options.momentum >= 0 && options.momentum <= 1)) {
    throw ConfigError(fmt::format("momentum must be between 0 and 1, found {}", options.momentum));
  }
  return std::make_shared<BatchNorm2d>(channels, options);
}

}  // namespace penstock::model::detail
