#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <fmt/format.h>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

class Pool2d final : public BuiltinLayer {
 public:
  enum class Mode : uint8_t { Max, Average };
  Pool2d(Mode mode, const Pool2dOptions& options)
      : mode_(mode),
        kernel_(options.kernel),
        stride_(options.stride == 0 ? options.kernel : options.stride),
        padding_(options.padding) {}

  std::string kind() const override { return mode_ == Mode::Max ? "max_pool2d" : "avg_pool2d"; }
  std::string code() const override {
    return fmt::format("{} kernel {} stride {} padding {}", kind(), kernel_, stride_, padding_);
  }

  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    const Shape& in = expect_image(inputs);
    return {{in[0], window_positions(in[1], kernel_, stride_, padding_),
             window_positions(in[2], kernel_, stride_, padding_)}};
  }

  /// Max pooling keeps the index of each maximum as a 64-bit number. Backward clears the input's
  /// gradient, then adds to it.
  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t in = batch_numbers(inputs, batch);
    const int64_t out = batch_numbers(outputs, batch);
    const int64_t places = mode_ == Mode::Max ? saturating_mul(2, out) : 0;
    return {.forward = {elementwise({in, out, places})},
            .backward_weights = {},
            .backward_inputs = {elementwise({out, places, in, in})},
            .stash_bytes = saturating_add(tensor_bytes(out), tensor_bytes(places)),
            .saves_outputs = false};
  }

  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    if (mode_ == Mode::Max) return {at::max_pool2d(inputs[0], kernel_, stride_, padding_)};
    return {at::avg_pool2d(inputs[0], kernel_, stride_, padding_)};
  }

 private:
  Mode mode_;
  int64_t kernel_;
  int64_t stride_;
  int64_t padding_;
};

class AdaptiveAvgPool2d final : public BuiltinLayer {
 public:
  explicit AdaptiveAvgPool2d(int64_t size) : size_(size) {}

  std::string kind() const override { return "adaptive_avg_pool2d"; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    return {{expect_image(inputs)[0], size_, size_}};
  }
  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    if (inputs[0] == outputs[0])
      return {.saves_inputs = false, .saves_outputs = false, .is_view = true};
    const int64_t in = batch_numbers(inputs, batch);
    const int64_t out = batch_numbers(outputs, batch);
    return {.forward = {elementwise({in, out})},
            .backward_weights = {},
            .backward_inputs = {elementwise({out, in})},
            .stash_bytes = tensor_bytes(out),
            .saves_outputs = false};
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    const at::Tensor& x = inputs[0];
    // Nothing to average: the networks' default input sizes lead to this case, and the kernel would
    // copy.
    if (x.size(2) == size_ && x.size(3) == size_) return {x.view_as(x)};
    return {at::adaptive_avg_pool2d(x, {size_, size_})};
  }

 private:
  int64_t size_;
};

LayerPtr make_pool(Pool2d::Mode mode, const Pool2dOptions& options) {
  check_range(options.kernel, 1, kMaxExtent, "kernel");
  check_range(options.stride, 0, kMaxExtent, "stride");
  check_range(options.padding, 0, options.kernel / 2, "padding");
  return std::make_shared<Pool2d>(mode, options);
}

}  // namespace

LayerPtr make_max_pool2d(const Pool2dOptions& options) {
  return make_pool(Pool2d::Mode::Max, options);
}
LayerPtr make_avg_pool2d(const Pool2dOptions& options) {
  return make_pool(Pool2d::Mode::Average, options);
}

LayerPtr make_adaptive_avg_pool2d(int64_t size) {
  check_range(size, 1, kMaxExtent, "size");
  return std::make_shared<AdaptiveAvgPool2d>(size);
}

}  // namespace penstock::model::detail
