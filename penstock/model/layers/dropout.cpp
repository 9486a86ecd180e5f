#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "penstock/model/device/devices.h"
#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/model/works_on_parts.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

/// The mask is drawn, then multiplied with; it is kept.
profile::LayerWork dropout_work(double probability, int64_t numbers, int64_t mask) {
  if (probability == 0) return {.saves_inputs = false, .saves_outputs = false, .is_view = true};
  return {.forward = {elementwise({mask}), elementwise({numbers, mask, numbers})},
          .backward_weights = {},
          .backward_inputs = {elementwise({numbers, mask, numbers})},
          .stash_bytes = saturating_add(tensor_bytes(numbers), tensor_bytes(mask)),
          .saves_inputs = false,
          .saves_outputs = false};
}

struct Mask {
  double probability = 0;
  /// What the layer sees of a whole value, whose mask it draws.
  std::optional<InputPart> part = {};

  std::string text() const { return fmt::format(" {}{}", probability, part ? part->text() : ""); }
};

/// `x` times a mask of these sizes, which x's own fit.
at::Tensor masked(const at::Tensor& x, std::vector<int64_t> sizes, const Mask& drawn,
                  const ForwardContext& context) {
  if (!context.training || drawn.probability == 0) return x.view_as(x);
  std::optional<InputPart> part = drawn.part;
  if (part) {
    int64_t& length = sizes[static_cast<size_t>(part->dimension)];
    part = part->placed(length, context.team);
    length = part->whole;
  }
  at::Tensor mask = at::empty(sizes, x.options());
  mask.bernoulli_(1 - drawn.probability, installed_devices().generator(x.device(), context.seed))
      .mul_(1 / (1 - drawn.probability));
  return at::mul(x, part ? part->of(mask) : mask);
}

/// Zeroes each number with the given probability and scales the others by 1 / (1 - probability);
/// the identity outside training. The mask depends only on context.seed and on whether the layer
/// runs on the CPU or on a GPU, which draws its own numbers.
class Dropout final : public BuiltinLayer, public WorksOnParts {
 public:
  explicit Dropout(Mask mask) : mask_(std::move(mask)) {}

  std::string kind() const override { return "dropout"; }
  std::string code() const override { return "dropout" + mask_.text(); }
  bool is_random() const override { return mask_.probability > 0; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    return inputs;
  }

  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch_numbers(outputs, batch);
    return dropout_work(mask_.probability, numbers, numbers);
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    return {masked(inputs[0], inputs[0].sizes().vec(), mask_, context)};
  }
  std::shared_ptr<const Layer> on_part(const InputPart& part) const override {
    return std::make_shared<Dropout>(Mask{mask_.probability, part});
  }

 private:
  Mask mask_;
};

/// Of [time, features]: leaves out the same features at all places of a sample (Gal and Ghahramani
/// 2016).
class LockedDropout final : public BuiltinLayer, public WorksOnParts {
 public:
  explicit LockedDropout(Mask mask) : mask_(std::move(mask)) {}

  std::string kind() const override { return "locked_dropout"; }
  std::string code() const override { return "locked_dropout" + mask_.text(); }
  bool is_random() const override { return mask_.probability > 0; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].size() != 2) {
      throw ConfigError(fmt::format("expected an input of shape [time, features], found {}",
                                    shape_text(inputs[0])));
    }
    return inputs;
  }

  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    return dropout_work(mask_.probability, batch_numbers(outputs, batch),
                        saturating_mul(batch, outputs[0][1]));
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    const at::Tensor& x = inputs[0];
    return {masked(x, {x.size(0), 1, x.size(2)}, mask_, context)};
  }
  /// Along the features.
  std::shared_ptr<const Layer> on_part(const InputPart& part) const override {
    return std::make_shared<LockedDropout>(Mask{mask_.probability, part});
  }

 private:
  Mask mask_;
};

}  // namespace

LayerPtr make_locked_dropout(double probability) {
  check_probability(probability);
  return std::make_shared<LockedDropout>(Mask{probability});
}

LayerPtr make_dropout(double probability) {
  check_probability(probability);
  return std::make_shared<Dropout>(Mask{probability});
}

}  // namespace penstock::model::detail
