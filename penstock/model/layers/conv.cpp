#include <ATen/ops/conv2d.h>
#include <fmt/format.h>

#include <cmath>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

/// weight [channels, in_channels / groups, kernel, kernel width], bias [channels]
class Conv2d final : public BuiltinLayer {
 public:
  Conv2d(int64_t in_channels, Conv2dOptions options)
      : in_channels_(in_channels), options_(std::move(options)) {}

  std::string kind() const override { return "conv2d"; }
  std::string code() const override {
    return fmt::format("conv2d stride {} padding {} {} groups {}", options_.stride,
                       options_.padding, padding_width(), options_.groups);
  }

  std::vector<ParameterSpec> parameters() const override {
    const int64_t fan_in = in_channels_ / options_.groups * options_.kernel * kernel_width();
    const Init standard = Init::uniform(1.0 / std::sqrt(static_cast<double>(fan_in)));
    std::vector<ParameterSpec> specs = {
        {"weight",
         {options_.channels, in_channels_ / options_.groups, options_.kernel, kernel_width()},
         options_.weight_init.value_or(standard)}};
    if (options_.bias)
      specs.push_back(
          {"bias", {options_.channels}, options_.weight_init ? Init::constant(0) : standard});
    return specs;
  }

  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    const Shape& in = expect_image(inputs);
    if (in[0] != in_channels_)
      throw ConfigError(
          fmt::format("expected {} input channels, found shape {}", in_channels_, shape_text(in)));
    return {{options_.channels,
             window_positions(in[1], options_.kernel, options_.stride, options_.padding),
             window_positions(in[2], kernel_width(), options_.stride, padding_width())}};
  }

  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const Shape& out = outputs[0];
    ConvolutionCount count{.batch = batch,
                           .in_channels = in_channels_,
                           .out_channels = options_.channels,
                           .groups = options_.groups,
                           .kernel = options_.kernel,
                           .kernel_width = kernel_width(),
                           .in_pixels = saturating_mul(inputs[0][1], inputs[0][2]),
                           .out_pixels = saturating_mul(out[1], out[2])};
    // The transformed method is made for small windows at every pixel.
    if (has_transformed_method(options_.kernel) && kernel_width() == options_.kernel &&
        options_.stride == 1 && options_.groups == 1)
      count.tiles = transformed_tiles(out[1], out[2]);
    const int64_t numbers = batch_numbers(outputs, batch);
    profile::LayerWork work{.forward = {convolution(count)},
                            .backward_weights = {convolution(count)},
                            .backward_inputs = {convolution(count)},
                            .stash_bytes = tensor_bytes(numbers),
                            .saves_outputs = false};
    // Libraries add the bias in a separate pass; its gradient is the sum over the output's.
    if (options_.bias) {
      work.forward.push_back(copy(numbers));
      work.backward_weights.push_back(elementwise({numbers}));
    }
    return work;
  }

  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    const at::Tensor bias = options_.bias ? weights[1] : at::Tensor();
    return {at::conv2d(inputs[0], weights[0], bias, options_.stride,
                       {options_.padding, padding_width()}, 1, options_.groups)};
  }

 private:
  int64_t kernel_width() const { return options_.kernel_width.value_or(options_.kernel); }
  int64_t padding_width() const { return options_.padding_width.value_or(options_.padding); }

  int64_t in_channels_;
  Conv2dOptions options_;
};

}  // namespace

LayerPtr make_conv2d(int64_t in_channels, const Conv2dOptions& options) {
  check_range(options.channels, 1, kMaxExtent, "channels");
  check_range(options.kernel, 1, kMaxExtent, "kernel");
  check_range(options.stride, 1, kMaxExtent, "stride");
  check_range(options.padding, 0, kMaxExtent, "padding");
  check_range(options.kernel_width.value_or(1), 1, kMaxExtent, "kernel width");
  check_range(options.padding_width.value_or(0), 0, kMaxExtent, "padding width");
  check_range(options.groups, 1, kMaxExtent, "groups");
  if (in_channels % options.groups != 0 || options.channels % options.groups != 0) {
    throw ConfigError(fmt::format("groups ({}) must divide input channels ({}) and channels ({})",
                                  options.groups, in_channels, options.channels));
  }
  return std::make_shared<Conv2d>(in_channels, options);
}

}  // namespace penstock::model::detail
