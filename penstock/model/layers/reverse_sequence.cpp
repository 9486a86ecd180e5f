#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/sequence_lengths.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model::detail {
namespace {

/// x [time, features] and the tokens [time] that it stands for: the places of each sentence in the
/// opposite order, its padding where it was. Done twice, it changes nothing.
class ReverseSequence final : public BuiltinLayer {
 public:
  std::string kind() const override { return "reverse_sequence"; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 2);
    if (inputs[0].size() != 2 || inputs[1] != Shape{inputs[0][0]}) {
      throw ConfigError(fmt::format("expected [time, features] and as many tokens, found {} and {}",
                                    shape_text(inputs[0]), shape_text(inputs[1])));
    }
    return {inputs[0]};
  }
  /// Backward clears the gradient, then adds to it.
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return {.forward = {copy(numbers)},
            .backward_weights = {},
            .backward_inputs = {elementwise({numbers, numbers, numbers})},
            .stash_bytes = tensor_bytes(numbers),
            .saves_inputs = false,
            .saves_outputs = false};
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    const at::Tensor& x = inputs[0];
    const at::Tensor lengths = sequence_lengths(inputs[1]);
    const at::Tensor places = at::arange(x.size(1), lengths.options());
    const at::Tensor from = at::where(places < lengths, lengths - 1 - places, places);
    return {at::gather(x, 1, from.unsqueeze(2).expand_as(x))};
  }
};

}  // namespace

LayerPtr make_reverse_sequence() { return std::make_shared<ReverseSequence>(); }

}  // namespace penstock::model::detail
