// Layers that only move or join data: add, concat, split, flatten.
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model::detail {
namespace {

class Add final : public BuiltinLayer {
 public:
  std::string kind() const override { return "add"; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 2);
    if (inputs[0] != inputs[1]) {
      throw ConfigError(fmt::format("expected two inputs of one shape, found {} and {}",
                                    shape_text(inputs[0]), shape_text(inputs[1])));
    }
    return {inputs[0]};
  }
  /// Both inputs receive the output's gradient itself.
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return kept_output(elementwise({numbers, numbers, numbers}), numbers);
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {at::add(inputs[0], inputs[1])};
  }
};

/// Along the first dimension of a sample, or the last one.
class Concat final : public BuiltinLayer {
 public:
  enum class Along : uint8_t { Channels, Features };
  Concat(int64_t parts, Along along) : parts_(parts), along_(along) {}

  std::string kind() const override {
    return along_ == Along::Channels ? "concat" : "concat_features";
  }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, static_cast<size_t>(parts_));
    Shape out = inputs[0];
    if (out.empty()) throw ConfigError("expected inputs with a channel dimension, found scalars");
    const size_t dimension = along_ == Along::Channels ? 0 : out.size() - 1;
    for (size_t i = 1; i < inputs.size(); ++i) {
      Shape part = inputs[i];
      const int64_t size = part.size() == out.size() ? part[dimension] : 0;
      if (size > 0) part[dimension] = out[dimension];
      if (part != out) {
        throw ConfigError(fmt::format("inputs may differ in {} only, found {} and {}",
                                      along_ == Along::Channels ? "channels" : "features",
                                      shape_text(inputs[0]), shape_text(inputs[i])));
      }
      out[dimension] += size;
    }
    return {out};
  }
  /// Backward returns views.
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return kept_output(copy(numbers), numbers);
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {
        at::cat(at::TensorList(inputs.data(), inputs.size()), along_ == Along::Channels ? 1 : -1)};
  }

 private:
  int64_t parts_;
  Along along_;
};

/// Logits [classes] of an answer and of auxiliary ones, one below the other; in evaluation the
/// answer alone.
class StackLogits final : public BuiltinLayer {
 public:
  explicit StackLogits(int64_t parts) : parts_(parts) {}

  std::string kind() const override { return "stack_logits"; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, static_cast<size_t>(parts_));
    for (const Shape& input : inputs) {
      if (input.size() != 1 || input != inputs[0]) {
        throw ConfigError(
            fmt::format("expected logits [classes] of the same classes, found {} and "
                        "{}",
                        shape_text(inputs[0]), shape_text(input)));
      }
    }
    return {{parts_, inputs[0][0]}};
  }
  /// Backward returns views.
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return kept_output(copy(numbers), numbers);
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    const size_t count = context.training ? inputs.size() : 1;
    return {at::stack(at::TensorList(inputs.data(), count), 1)};
  }

 private:
  int64_t parts_;
};

class Split final : public BuiltinLayer {
 public:
  explicit Split(int64_t parts) : parts_(parts) {}

  std::string kind() const override { return "split"; }
  int num_outputs() const override { return static_cast<int>(parts_); }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].empty() || inputs[0][0] % parts_ != 0) {
      throw ConfigError(fmt::format("the channels of {} cannot be split into {} equal parts",
                                    shape_text(inputs[0]), parts_));
    }
    Shape part = inputs[0];
    part[0] /= parts_;
    return std::vector<Shape>(static_cast<size_t>(parts_), part);
  }
  /// Forward returns views; backward joins the gradients.
  profile::LayerWork work(const std::vector<Shape>& inputs, const std::vector<Shape>&,
                          int64_t batch) const override {
    return {.forward = {},
            .backward_weights = {},
            .backward_inputs = {copy(batch_numbers(inputs, batch))},
            .saves_inputs = false,
            .saves_outputs = false,
            .is_view = true};
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    const int64_t channels = inputs[0].size(1) / parts_;
    Tensors outputs;
    for (int64_t i = 0; i < parts_; ++i)
      outputs.push_back(inputs[0].narrow(1, i * channels, channels));
    return outputs;
  }

 private:
  int64_t parts_;
};

class Flatten final : public BuiltinLayer {
 public:
  std::string kind() const override { return "flatten"; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    return {{checked_elements(inputs[0], "input")}};
  }
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>&,
                          int64_t) const override {
    return {.saves_inputs = false, .saves_outputs = false, .is_view = true};
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    // A sample may be a single number without dimensions.
    if (inputs[0].dim() == 1) return {inputs[0].unsqueeze(1)};
    return {at::flatten(inputs[0], 1)};
  }
};

}  // namespace

LayerPtr make_add() { return std::make_shared<Add>(); }

LayerPtr make_concat(int64_t parts) {
  check_range(parts, 1, 100'000, "number of parts");
  return std::make_shared<Concat>(parts, Concat::Along::Channels);
}

LayerPtr make_concat_features(int64_t parts) {
  check_range(parts, 1, kMaxExtent, "parts");
  return std::make_shared<Concat>(parts, Concat::Along::Features);
}

LayerPtr make_stack_logits(int64_t parts) {
  check_range(parts, 1, kMaxExtent, "parts");
  return std::make_shared<StackLogits>(parts);
}

LayerPtr make_split(int64_t parts) {
  check_range(parts, 1, 100'000, "number of parts");
  return std::make_shared<Split>(parts);
}

LayerPtr make_flatten() { return std::make_shared<Flatten>(); }

}  // namespace penstock::model::detail
