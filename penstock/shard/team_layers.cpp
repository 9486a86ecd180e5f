#include "penstock/shard/team_layers.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <utility>

#include "penstock/model/float32_layers.h"
#include "penstock/model/known_code.h"
#include "penstock/model/shapes.h"
#include "penstock/shard/part_layer.h"

namespace penstock::shard {
namespace {

using model::ForwardContext;
using model::MutableTensorSpan;
using model::Shape;
using model::Tensors;
using model::TensorSpan;

/// One input, of whatever shape; no weights.
class BetweenMembers : public model::Layer, public model::KnownCode, public model::KeepsTypes {
 public:
  std::string code() const override { return kind(); }
  bool is_random() const override { return false; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    return {inputs.at(0)};
  }
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>&,
                          int64_t) const override {
    return {.saves_inputs = false, .saves_outputs = false, .is_view = true};
  }
};

class SumForward final : public BetweenMembers {
 public:
  std::string kind() const override { return "team_sum_forward"; }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    if (context.team == nullptr) return {inputs[0].view_as(inputs[0])};
    return {model::sum_forward(inputs[0], *context.team)};
  }
};

class SumBackward final : public BetweenMembers {
 public:
  std::string kind() const override { return "team_sum_backward"; }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    if (context.team == nullptr) return {inputs[0].view_as(inputs[0])};
    return {model::sum_backward(inputs[0], *context.team)};
  }
};

using Crossing = at::Tensor (*)(const at::Tensor&, model::Team&, const model::Division&);

class Gather final : public BetweenMembers {
 public:
  Gather(const char* kind, Crossing crossing, model::Division division)
      : kind_(kind), crossing_(crossing), division_(std::move(division)) {}
  std::string kind() const override { return kind_; }
  std::string code() const override {
    return fmt::format("{} {}: {}", kind_, division_.dimension, fmt::join(division_.lengths, " "));
  }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    Shape shape = inputs.at(0);
    shape.at(static_cast<size_t>(division_.dimension - 1)) = whole();
    return {shape};
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    if (context.team != nullptr) return {crossing_(inputs[0], *context.team, division_)};
    std::vector<int64_t> missing = inputs[0].sizes().vec();
    int64_t& length = missing[static_cast<size_t>(division_.dimension)];
    length = whole() - length;
    return {at::cat({inputs[0], at::zeros(missing, inputs[0].options())}, division_.dimension)};
  }

 private:
  int64_t whole() const {
    return std::accumulate(division_.lengths.begin(), division_.lengths.end(), int64_t{0});
  }
  const char* kind_;
  Crossing crossing_;
  model::Division division_;
};

/// Between all places of a sequence and a member's part of them.
class SequenceLayer final : public BetweenMembers {
 public:
  struct Spec {
    const char* kind;
    Crossing crossing;
    bool gathers;  ///< makes all places of a part
  };
  SequenceLayer(const Spec& spec, int members) : spec_(spec), members_(members) {}
  std::string kind() const override { return spec_.kind; }
  std::string code() const override { return fmt::format("{} {}", spec_.kind, members_); }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    Shape shape = inputs.at(0);
    shape.at(0) = spec_.gathers ? shape[0] * members_ : shape[0] / members_;
    return {shape};
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    if (context.team != nullptr)
      return {spec_.crossing(inputs[0], *context.team, {.dimension = kPlaces})};
    const at::Tensor& x = inputs[0];
    if (!spec_.gathers) return {x.narrow(kPlaces, 0, x.size(kPlaces) / members_).contiguous()};
    return {at::cat(std::vector<at::Tensor>(static_cast<size_t>(members_), x), kPlaces)};
  }

 private:
  static constexpr int64_t kPlaces = 1;
  Spec spec_;
  int members_;
};

class Bias final : public BetweenMembers, public SumsWeightGradients {
 public:
  Bias(int64_t numbers, int64_t dimension, bool sums_gradients)
      : numbers_(numbers), dimension_(dimension), sums_gradients_(sums_gradients) {}
  std::string kind() const override { return "team_bias"; }
  std::string code() const override {
    return fmt::format("team_bias {}{}", dimension_, sums_gradients_ ? " summed" : "");
  }
  bool sums_weight_gradients() const override { return sums_gradients_; }
  bool weight_gradients_can_wait() const override { return !sums_gradients_; }
  std::vector<model::ParameterSpec> parameters() const override {
    return {{"bias", {numbers_}, model::Init::constant(0)}};
  }
  /// The output's gradient is the input's; the bias's is its sum.
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t numbers = batch * model::detail::checked_elements(outputs[0], "output");
    return {.forward = {{.bytes = 8 * numbers}},
            .backward_weights = {{.bytes = 4 * numbers}},
            .backward_inputs = {},
            .stash_bytes = 0,
            .saves_inputs = false,
            .saves_outputs = false};
  }
  Tensors forward(TensorSpan weights, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    std::vector<int64_t> sizes(static_cast<size_t>(inputs[0].dim()), 1);
    sizes[static_cast<size_t>(dimension_)] = numbers_;
    const bool sums = sums_gradients_ && context.team != nullptr;
    const at::Tensor bias = sums ? model::sum_backward(weights[0], *context.team) : weights[0];
    return {at::add(inputs[0], bias.view(sizes))};
  }

 private:
  int64_t numbers_;
  int64_t dimension_;
  bool sums_gradients_;
};

class GradientToAll : public torch::autograd::Function<GradientToAll> {
 public:
  // A list of another type would be no variables to autograd.
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList values) {
    context->saved_data["count"] = static_cast<int64_t>(values.size());
    return values.front().view_as(values.front());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto count = static_cast<size_t>(context->saved_data["count"].toInt());
    return torch::autograd::variable_list(count, gradients.front());
  }
};

class Join final : public BetweenMembers {
 public:
  explicit Join(int count) : count_(count) {}
  std::string kind() const override { return "team_join"; }
  std::string code() const override { return fmt::format("team_join {}", count_); }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {GradientToAll::apply(at::TensorList(inputs.data(), inputs.size()))};
  }

 private:
  int count_;
};

/// What is made of the value needs a gradient on this member, too: only so do all members make the
/// same exchanges in the backward pass.
class GradientEndsHere : public torch::autograd::Function<GradientEndsHere> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& value) {
    return value.view_as(value);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    return {at::Tensor()};
  }
};

class WithoutGradient final : public BetweenMembers {
 public:
  std::string kind() const override { return "team_without_gradient"; }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {GradientEndsHere::apply(inputs[0])};
  }
};

}  // namespace

LayerPtr make_sum_forward() { return std::make_shared<SumForward>(); }
LayerPtr make_sum_backward() { return std::make_shared<SumBackward>(); }
LayerPtr make_gather(model::Division division) {
  return std::make_shared<Gather>("team_gather", model::gather, std::move(division));
}
LayerPtr make_gather_sum(model::Division division) {
  return std::make_shared<Gather>("team_gather_sum", model::gather_sum, std::move(division));
}
LayerPtr make_sequence_gather(int members) {
  return std::make_shared<SequenceLayer>(
      SequenceLayer::Spec{"team_gather", model::gather, /*gathers=*/true}, members);
}
LayerPtr make_sequence_gather_sum(int members) {
  return std::make_shared<SequenceLayer>(
      SequenceLayer::Spec{"team_gather_sum", model::gather_sum, /*gathers=*/true}, members);
}
LayerPtr make_sequence_part(int members) {
  return std::make_shared<SequenceLayer>(
      SequenceLayer::Spec{"team_part", model::part, /*gathers=*/false}, members);
}
LayerPtr make_sequence_sum_part(int members) {
  return std::make_shared<SequenceLayer>(
      SequenceLayer::Spec{"team_sum_part", model::sum_part, /*gathers=*/false}, members);
}
LayerPtr make_bias(int64_t numbers, int64_t dimension, bool sums_gradients) {
  return std::make_shared<Bias>(numbers, dimension, sums_gradients);
}
LayerPtr make_join(int count) { return std::make_shared<Join>(count); }
LayerPtr make_without_gradient() { return std::make_shared<WithoutGradient>(); }

}  // namespace penstock::shard
