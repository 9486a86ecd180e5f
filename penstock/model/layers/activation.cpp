#include <ATen/ops/relu.h>
#include <ATen/ops/tanh.h>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/gelu.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"

namespace penstock::model::detail {
namespace {

/// Element by element, never in place: another stage may be reading the input.
class Activation final : public BuiltinLayer {
 public:
  using Function = at::Tensor (*)(const at::Tensor&);
  /// What the gradient is computed from.
  enum class Keeps : uint8_t { Input, Output };
  Activation(std::string kind, Keeps keeps, Function function)
      : kind_(std::move(kind)), keeps_(keeps), function_(function) {}

  std::string kind() const override { return kind_; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    return inputs;
  }
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return {.forward = {elementwise({numbers, numbers})},
            .backward_weights = {},
            .backward_inputs = {elementwise({numbers, numbers, numbers})},
            .stash_bytes = tensor_bytes(numbers),
            .saves_inputs = keeps_ == Keeps::Input,
            .saves_outputs = keeps_ == Keeps::Output};
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {function_(inputs[0])};
  }

 private:
  std::string kind_;
  Keeps keeps_;
  Function function_;
};

}  // namespace

LayerPtr make_relu() {
  return std::make_shared<Activation>("relu", Activation::Keeps::Output,
                                      [](const at::Tensor& x) { return at::relu(x); });
}

LayerPtr make_tanh() {
  return std::make_shared<Activation>("tanh", Activation::Keeps::Output,
                                      [](const at::Tensor& x) { return at::tanh(x); });
}

LayerPtr make_gelu() {
  return std::make_shared<Activation>("gelu", Activation::Keeps::Input,
                                      [](const at::Tensor& x) { return model::gelu(x, "tanh"); });
}

}  // namespace penstock::model::detail
