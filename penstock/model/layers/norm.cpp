#include <ATen/ops/batch_norm.h>
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

}  // namespace

LayerPtr make_batch_norm2d(int64_t channels, const BatchNormOptions& options) {
  if (!(options.epsilon > 0))
    throw ConfigError(fmt::format("epsilon must be positive, found {}", options.epsilon));
  if (!(options.momentum >= 0 && options.momentum <= 1)) {
    throw ConfigError(fmt::format("momentum must be between 0 and 1, found {}", options.momentum));
  }
  return std::make_shared<BatchNorm2d>(channels, options);
}

}  // namespace penstock::model::detail
