// Derives the rule of an operator: on parts of small random numbers against the whole one, for
// every dimension of every operand, by threads, in float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "penstock/imported/program_layer.h"
#include "penstock/model/team_functions.h"
#include "penstock/model/testing_team.h"

namespace penstock::imported::testing_rules {

using exported::Argument;
using exported::NamedArgument;
using exported::SymIntArgument;
using exported::TensorArgument;
using model::Tensors;
using shard::Kind;
using shard::Type;

enum class Role : uint8_t { Input, Weight, Buffer, Places, Truths };

struct Operand {
  std::string name;
  std::vector<int64_t> sizes;
  Role role = Role::Input;
  int64_t values = 0;  ///< places are below that number
};

struct Case {
  std::string title;
  std::string target;
  std::vector<Operand> operands;
  std::vector<NamedArgument> others = {};
  int outputs = 1;        ///< several are a list
  bool is_list = false;   ///< takes a list of its operands
  bool is_tuple = false;  ///< several outputs are results of their own
  /// Arguments that are lists of some of the operands.
  std::vector<std::pair<std::string, std::vector<std::string>>> lists = {};
};

inline Argument sizes(const std::vector<int64_t>& numbers) {
  std::vector<SymIntArgument> some;
  for (const int64_t number : numbers) some.push_back({number});
  return some;
}

/// A part of an operand along a dimension; nothing: the rows of candidates are spread.
using Place = std::pair<std::string, size_t>;

class SpreadAll final : public shard::Walk {
 public:
  SpreadAll(shard::Regions& regions, int members, const std::vector<model::ParameterSpec>& specs,
            const ProgramLayer& layer)
      : Walk(regions), members_(members), specs_(specs), layer_(layer) {}
  std::optional<Type> spread(size_t parameter) override {
    const int64_t rows = specs_[parameter].shape[layer_.row_dimension(parameter)];
    const shard::Region region = regions().make();
    regions().divide(region, rows);
    return Type::part(0, region, {rows});
  }
  int team() const override { return members_; }

 private:
  int members_;
  const std::vector<model::ParameterSpec>& specs_;
  const ProgramLayer& layer_;
};

/// A layer of one step.
class OneStep {
 public:
  explicit OneStep(const Case& one) : case_(one) {
    describe();
    const Tensors outputs = layer()->forward(weights_, buffers(), inputs_, context(nullptr));
    for (size_t o = 0; o < outputs.size(); ++o) note(parts_.outputs[o], outputs[o]);
    layer_ = layer();
  }

  /// Whether the operator takes these parts; compares what members make of them.
  bool takes(const std::vector<Place>& places, int members) {
    shard::Regions regions;
    const shard::Region region = regions.make();
    std::vector<Type> types(parts_.inputs.size());
    for (const auto& [name, dimension] : places) {
      const auto found = std::find(parts_.inputs.begin(), parts_.inputs.end(), name);
      const size_t i = static_cast<size_t>(found - parts_.inputs.begin());
      const int64_t length = inputs_[i].size(static_cast<int64_t>(dimension));
      regions.divide(region, length);
      types[i] = Type::part(dimension, region, {length});
    }
    if (!places.empty() && regions.units(region) < members) return false;
    const auto specs = layer_->parameters();
    SpreadAll walk(regions, members, specs, *layer_);
    const std::vector<model::Shape> none;
    shard::LayerTypes found;
    try {
      found = layer_->infer(types, {none, none}, walk);
    } catch (const shard::Refused&) {
      return false;
    } catch (const shard::InBlocks&) {
      return false;
    }
    for (const auto* list : {&found.inputs, &found.weights, &found.outputs}) {
      for (const Type& type : *list) {
        if (type.is_part() && regions.units(type.region) < members) return false;
      }
    }
    compare(found, regions, members);
    return true;
  }

  bool has_candidates() const { return !layer_->candidates().empty(); }

 private:
  struct Pass {
    Tensors outputs;
    Tensors gradients;  ///< of inputs, then of weights; undefined: none
  };

  void describe() {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(11);
    Step step{.node = {.target = "torch.ops.aten." + case_.target, .inputs = {}, .outputs = {}}};
    step.node.name = case_.title;
    std::vector<TensorArgument> list;
    for (const Operand& operand : case_.operands) {
      list.push_back({operand.name});
      step.node.inputs.push_back({.name = operand.name, .value = TensorArgument{operand.name}});
      at::Tensor numbers = at::empty(operand.sizes, at::kDouble).normal_(0, 1, generator);
      if (operand.role == Role::Places)
        numbers = at::empty(operand.sizes, at::kLong).random_(0, operand.values, generator);
      if (operand.role == Role::Truths) numbers = numbers > 0;
      note(operand.name, numbers);
      if (operand.role == Role::Weight || operand.role == Role::Buffer) {
        const bool is_weight = operand.role == Role::Weight;
        (is_weight ? parts_.parameters : parts_.buffers).push_back(operand.name);
        (is_weight ? parts_.parameter_specs : parts_.buffer_specs)
            .push_back({operand.name, operand.sizes, {}});
        (is_weight ? weights_ : buffers_).push_back(is_weight ? numbers : numbers.abs());
      } else {
        parts_.inputs.push_back(operand.name);
        parts_.copied.push_back(case_.target.find("_.") != std::string::npos);
        parts_.input_shapes.emplace_back(operand.sizes.begin() + 1, operand.sizes.end());
        inputs_.push_back(numbers);
      }
    }
    if (case_.is_list) step.node.inputs = {{.name = "tensors", .value = list}};
    for (const auto& [argument, names] : case_.lists) {
      std::vector<TensorArgument> some;
      for (const std::string& name : names) {
        some.push_back({name});
        std::erase_if(step.node.inputs,
                      [&](const NamedArgument& input) { return input.name == name; });
      }
      step.node.inputs.push_back({.name = argument, .value = some});
    }
    step.node.inputs.insert(step.node.inputs.end(), case_.others.begin(), case_.others.end());
    std::vector<TensorArgument> made;
    for (int o = 0; o < case_.outputs; ++o) made.push_back({"out" + std::to_string(o)});
    for (const TensorArgument& one : made) parts_.outputs.push_back(one.name);
    if (case_.is_tuple)
      step.node.outputs.assign(made.begin(), made.end());
    else if (made.size() > 1)
      step.node.outputs = {made};
    else
      step.node.outputs = {made.front()};
    parts_.kind = case_.title;
    parts_.steps = {0};
    parts_.output_shapes.resize(made.size());
    program_.steps = {step};
  }

  void note(const std::string& name, const at::Tensor& tensor) {
    exported::TensorMeta meta;
    meta.type = tensor.scalar_type() == at::kLong   ? exported::ScalarType::Long
                : tensor.scalar_type() == at::kBool ? exported::ScalarType::Bool
                                                    : exported::ScalarType::Double;
    for (const int64_t size : tensor.sizes()) meta.sizes.push_back({.value = size});
    program_.tensors[name] = meta;
    for (size_t o = 0; o < parts_.outputs.size(); ++o) {
      if (parts_.outputs[o] == name && tensor.dim() > 0)
        parts_.output_shapes[o] = {tensor.sizes().begin() + 1, tensor.sizes().end()};
    }
  }

  std::shared_ptr<const ProgramLayer> layer() const {
    return std::make_shared<const ProgramLayer>(parts_, program_);
  }
  Tensors& buffers() {
    own_buffers_.clear();
    for (const at::Tensor& buffer : buffers_) own_buffers_.push_back(buffer.clone());
    return own_buffers_;
  }
  static model::ForwardContext context(model::Team* team) {
    return {.training = true, .seed = 5, .team = team};
  }

  static at::Tensor leaf(const at::Tensor& numbers) {
    const at::Tensor own = numbers.clone();
    return own.is_floating_point() ? own.requires_grad_(true) : own;
  }

  /// For the loss sum(outputs * coefficients).
  static Pass pass(const model::Layer& layer, const Tensors& inputs, const Tensors& weights,
                   Tensors buffers, const std::vector<Kind>& kinds,
                   const std::function<at::Tensor(size_t, const at::Tensor&)>& coefficients,
                   model::Team* team) {
    const at::AutoGradMode with_graph(true);
    Tensors leaves;
    Tensors read;
    for (size_t i = 0; i < inputs.size(); ++i) {
      leaves.push_back(leaf(inputs[i]));
      const bool is_pending = team != nullptr && kinds[i] == Kind::Pending;
      read.push_back(is_pending ? model::sum_backward(leaves.back(), *team) : leaves.back());
      if (leaves.back().requires_grad() && !is_pending)
        read.back() = leaves.back().view_as(leaves.back());
    }
    Tensors own;
    for (const at::Tensor& weight : weights) {
      own.push_back(leaf(weight));
      leaves.push_back(own.back());
    }
    Pass result;
    result.outputs = layer.forward(own, buffers, read, context(team));
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (size_t o = 0; o < result.outputs.size(); ++o) {
      const at::Tensor& output = result.outputs[o];
      if (output.is_floating_point()) loss = loss + (output * coefficients(o, output)).sum();
    }
    Tensors wanted;
    for (const at::Tensor& one : leaves) {
      if (one.requires_grad()) wanted.push_back(one);
    }
    Tensors gradients;
    if (loss.requires_grad())
      gradients = torch::autograd::grad({loss}, wanted, {}, {}, false, true);
    size_t next = 0;
    for (const at::Tensor& one : leaves) {
      const bool has = one.requires_grad() && !gradients.empty();
      result.gradients.push_back(has ? gradients[next++] : at::Tensor());
    }
    result.outputs.insert(result.outputs.end(), buffers.begin(), buffers.end());
    return result;
  }

  static at::Tensor ramp(const at::Tensor& like) {
    return at::linspace(0.5, 1.5, like.numel(), at::kDouble).view(like.sizes());
  }

  void compare(const shard::LayerTypes& types, const shard::Regions& regions, int members) {
    const std::vector<Kind> none(inputs_.size(), Kind::Equal);
    const Pass whole = pass(
        *layer_, inputs_, weights_, buffers(), none,
        [](size_t, const at::Tensor& output) { return ramp(output); }, nullptr);
    std::vector<Kind> kinds;
    for (const Type& type : types.inputs) kinds.push_back(type.kind);
    const std::vector<model::Shape> shapes;
    std::vector<std::shared_ptr<const model::Layer>> layers;
    for (int m = 0; m < members; ++m) {
      const shard::Member member{regions, members, m};
      const auto pieces = layer_->pieces(types, {shapes, shapes}, member);
      ASSERT_EQ(pieces.size(), 1u);
      layers.push_back(pieces[0].layer);
      EXPECT_EQ(layer_->check(*layers.back(), types, member), std::vector<std::string>())
          << case_.title;
    }
    const auto own = [&](const at::Tensor& tensor, const Type& type, int m) {
      return shard::Member{regions, members, m}.part(type, {}, 0).of(tensor);
    };
    const auto some = [&](const Tensors& tensors, const std::vector<Type>& parts, int m) {
      Tensors result;
      for (size_t i = 0; i < tensors.size(); ++i) result.push_back(own(tensors[i], parts[i], m));
      return result;
    };
    const Tensors first_buffers = buffers();
    const auto found =
        model::team_testing::in_team<Pass>(members, [&](model::team_testing::ThreadTeam& team) {
          const int m = team.member();
          Tensors parts_of_buffers;
          for (const at::Tensor& buffer : some(first_buffers, types.buffers, m))
            parts_of_buffers.push_back(buffer.clone());
          return pass(
              *layers[static_cast<size_t>(m)], some(inputs_, types.inputs, m),
              some(weights_, types.weights, m), parts_of_buffers, kinds,
              [&](size_t o, const at::Tensor&) {
                return own(ramp(whole.outputs[o]), types.outputs[o], m);
              },
              &team);
        });
    std::vector<Type> made = types.outputs;
    made.insert(made.end(), types.buffers.begin(), types.buffers.end());
    std::vector<Type> read = types.inputs;
    read.insert(read.end(), types.weights.begin(), types.weights.end());
    for (int m = 0; m < members; ++m) {
      const Pass& member = found[static_cast<size_t>(m)];
      for (size_t o = 0; o < made.size(); ++o)
        expect_close(member.outputs[o], own(whole.outputs[o], made[o], m), "output", m);
      for (size_t i = 0; i < read.size(); ++i) {
        if (whole.gradients[i].defined())
          expect_close(member.gradients[i], own(whole.gradients[i], read[i], m), "gradient", m);
      }
    }
  }

  void expect_close(const at::Tensor& found, const at::Tensor& expected, const char* what, int m) {
    ASSERT_TRUE(found.defined()) << case_.title << ' ' << what << ", member " << m;
    ASSERT_EQ(found.sizes(), expected.sizes()) << case_.title << ' ' << what << ", member " << m;
    const double scale = std::max(1.0, expected.to(at::kDouble).abs().max().item<double>());
    const at::Tensor apart = found.to(at::kDouble) - expected.to(at::kDouble);
    EXPECT_LE(apart.abs().max().item<double>(), 1e-12 * scale)
        << case_.title << ' ' << what << ", member " << m;
  }

  Case case_;
  LayerParts parts_;
  FlatProgram program_;
  Tensors inputs_;
  Tensors weights_;
  Tensors buffers_;
  Tensors own_buffers_;
  std::shared_ptr<const ProgramLayer> layer_;
};

/// The parts that the operator takes, such as "x2 y1, x2": of inputs, along which dimension;
/// "rows": of its weight.
inline std::string parts_taken(const Case& one) {
  OneStep step(one);
  std::vector<Place> places;
  for (const Operand& operand : one.operands) {
    if (operand.role == Role::Weight || operand.role == Role::Buffer) continue;
    for (size_t d = 0; d < operand.sizes.size(); ++d) places.emplace_back(operand.name, d);
  }
  std::string text;
  const auto try_all = [&](const std::vector<Place>& some, const std::string& name) {
    bool any = false;
    for (const int members : {2, 3, 4}) any = step.takes(some, members) || any;
    if (any) text += (text.empty() ? "" : ", ") + name;
  };
  if (step.has_candidates()) try_all({}, "rows");
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string name = places[i].first + std::to_string(places[i].second);
    try_all({places[i]}, name);
    for (size_t k = i + 1; k < places.size(); ++k) {
      if (places[k].first != places[i].first)
        try_all({places[i], places[k]},
                name + ' ' + places[k].first + std::to_string(places[k].second));
    }
  }
  return text;
}

inline NamedArgument named(const std::string& name, Argument value) {
  return {.name = name, .value = std::move(value), .keyword = true};
}

}  // namespace penstock::imported::testing_rules
