// A model of the zoo beside one of PyTorch's modules with the same weights, whose numbers
// tests/support/zoo_reference.py printed.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/model/model.h"

namespace penstock::model {

/// The loss, and of each weight the sum of the absolute values of its gradient.
using ReferenceNumbers = std::map<std::string, double>;

/// The weights by their names in the state dict, tied ones once, filled as the script does.
inline std::map<std::string, at::Tensor> reference_weights(const Model& model) {
  std::map<std::string, at::Tensor> weights;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const std::vector<ParameterSpec> specs = model.layer(LayerId{i}).parameters();
    for (size_t k = 0; k < specs.size(); ++k) {
      if (model.graph().owner({LayerId{i}, static_cast<int>(k)}).layer == LayerId{i})
        weights[state_key(model.graph().layer(LayerId{i}).name, specs[k])] =
            at::empty(specs[k].shape);
    }
  }
  int64_t index = 0;
  for (auto& [name, weight] : weights) {
    const at::Tensor angles = at::arange(weight.numel(), at::kDouble) * 0.7 + index++;
    weight = (angles.sin() / 2).to(at::kFloat).view_as(weight).requires_grad_();
  }
  return weights;
}

/// The model's output, as one autograd graph.
inline at::Tensor reference_output(const Model& model,
                                   const std::map<std::string, at::Tensor>& weights,
                                   const Tensors& inputs) {
  std::vector<Tensors> outputs;
  const auto value = [&](const graph::ValueRef& ref) {
    const auto output = static_cast<size_t>(ref.output);
    return ref.is_model_input() ? inputs[output] : outputs[ref.layer.index()][output];
  };
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const LayerId id{i};
    Tensors read;
    for (const graph::ValueRef& ref : model.graph().layer(id).inputs) read.push_back(value(ref));
    Tensors own;
    const auto count = static_cast<int>(model.layer(id).parameters().size());
    for (int k = 0; k < count; ++k) {
      const graph::ParameterRef owner = model.graph().owner({id, k});
      own.push_back(weights.at(
          state_key(model.graph().layer(owner.layer).name,
                    model.layer(owner.layer).parameters()[static_cast<size_t>(owner.parameter)])));
    }
    Tensors buffers = model.initial_buffers(id);
    outputs.push_back(model.layer(id).forward(own, buffers, read, {.training = true, .seed = 1}));
  }
  return value(model.graph().outputs().front());
}

/// For a model whose last input is tokens, without dropout, with so many samples.
inline void expect_reference(const Model& model, int64_t samples,
                             const ReferenceNumbers& expected) {
  std::map<std::string, at::Tensor> weights = reference_weights(model);
  const int64_t values = model.inputs().back().values;
  const auto counted = [&](const Shape& shape, int64_t first) {
    Shape sizes = shape;
    sizes.insert(sizes.begin(), samples);
    int64_t numbers = 1;
    for (const int64_t size : sizes) numbers *= size;
    return ((at::arange(numbers) * 7 + 5 + first) % values).view(sizes);
  };
  Tensors inputs;
  for (const InputSpec& input : model.inputs())
    inputs.push_back(counted(input.shape, static_cast<int64_t>(inputs.size())));
  for (at::Tensor& input : inputs)
    if (input.dim() > 2) input = input.to(at::kFloat) * 0.1;
  const at::Tensor targets =
      counted(model.inputs().back().shape, static_cast<int64_t>(inputs.size()));
  const at::Tensor output = reference_output(model, weights, inputs);
  const at::Tensor loss =
      cross_entropy(output, targets, {.samples = samples, .targets = targets.numel()}).scaled_loss;
  Tensors leaves;
  for (const auto& [name, weight] : weights) leaves.push_back(weight);
  const Tensors gradients = torch::autograd::grad({loss}, leaves);
  ReferenceNumbers found = {{"loss", loss.item<double>()}};
  size_t i = 0;
  for (const auto& [name, weight] : weights)
    found[name] = gradients[i++].abs().sum(at::kDouble).item<double>();
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, number] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_NEAR(found.at(name), number, 1e-4 * std::abs(number)) << name;
  }
}

}  // namespace penstock::model
