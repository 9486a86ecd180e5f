// Layers that make sequences longer or shorter.
#include <ATen/ops/constant_pad_nd.h>
#include <fmt/format.h>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model::detail {
namespace {

const Shape& expect_sequence(const std::vector<Shape>& inputs) {
  expect_inputs(inputs, 1);
  if (inputs[0].size() != 2) {
    throw ConfigError(fmt::format("expected an input of shape [time, features], found {}",
                                  shape_text(inputs[0])));
  }
  return inputs[0];
}

/// Zeros before and behind the places.
class PadPlaces final : public BuiltinLayer {
 public:
  explicit PadPlaces(const PlacesOptions& options) : options_(options) {}

  std::string kind() const override { return "pad_places"; }
  std::string code() const override { return fmt::format("pad_places {}", options_.before); }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    const Shape& in = expect_sequence(inputs);
    return {{options_.before + in[0] + options_.behind, in[1]}};
  }
  /// Backward returns a view.
  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return kept_output(elementwise({batch_numbers(inputs, batch), numbers}), numbers);
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {at::constant_pad_nd(inputs[0], {0, 0, options_.before, options_.behind})};
  }

 private:
  PlacesOptions options_;
};

/// Leaves out places at both ends.
class CutPlaces final : public BuiltinLayer {
 public:
  explicit CutPlaces(const PlacesOptions& options) : options_(options) {}

  std::string kind() const override { return "cut_places"; }
  std::string code() const override { return fmt::format("cut_places {}", options_.before); }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    const Shape& in = expect_sequence(inputs);
    const int64_t left = in[0] - options_.before - options_.behind;
    if (left < 1) {
      throw ConfigError(fmt::format("of {} places {} and {} cannot be left out", in[0],
                                    options_.before, options_.behind));
    }
    return {{left, in[1]}};
  }
  /// Backward clears a gradient of all places and copies into it.
  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return {.forward = {copy(numbers)},
            .backward_weights = {},
            .backward_inputs = {elementwise({batch_numbers(inputs, batch), numbers, numbers})},
            .stash_bytes = tensor_bytes(numbers),
            .saves_inputs = false,
            .saves_outputs = false};
  }
  /// A copy, so that what the next stage gets is contiguous and the rest is freed.
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    const int64_t left = inputs[0].size(1) - options_.before - options_.behind;
    return {inputs[0].narrow(1, options_.before, left).contiguous()};
  }

 private:
  PlacesOptions options_;
};

void check_places(const PlacesOptions& options) {
  check_range(options.before, 0, kMaxExtent, "places before");
  check_range(options.behind, 0, kMaxExtent, "places behind");
}

}  // namespace

LayerPtr make_pad_places(const PlacesOptions& options) {
  check_places(options);
  return std::make_shared<PadPlaces>(options);
}

LayerPtr make_cut_places(const PlacesOptions& options) {
  check_places(options);
  return std::make_shared<CutPlaces>(options);
}

}  // namespace penstock::model::detail
