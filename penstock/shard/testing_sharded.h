// Runs a model whose only stage is spread over a team, and the whole one, in float64, and compares
// them: values, gradients of weights and of the input.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "penstock/model/testing_team.h"
#include "penstock/shard/shard.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::shard::testing {

using model::Tensors;

/// What one pass made: the first output, and the gradients of weights (by layer of the model that
/// was run) for the loss sum(output * ramp).
struct Passed {
  at::Tensor output;
  std::map<int32_t, Tensors> gradients;
  int64_t sent_bytes = 0;
};

inline at::Tensor in_type(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.is_floating_point() ? tensor.to(type) : tensor;
}

/// The layers of `member` (of all, where the model is whole), with weights of `seed`.
inline Passed pass(const model::Model& model, const Tensors& inputs, uint64_t seed,
                   model::team_testing::ThreadTeam* team, at::ScalarType type = at::kDouble) {
  const at::AutoGradMode with_graph(true);
  std::map<graph::ValueRef, at::Tensor> values;
  std::map<int32_t, Tensors> weights;
  Tensors leaves;
  for (int32_t l = 0; l < model.graph().num_layers(); ++l) {
    const LayerId id{l};
    const model::LayerPart* const part = model.part(id);
    if (part != nullptr && part->member != team->member()) continue;
    Tensors own;
    for (const at::Tensor& weight : model.initial_weights(id, seed)) {
      own.push_back(weight.to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true));
      leaves.push_back(own.back());
    }
    Tensors buffers;
    for (const at::Tensor& buffer : model.initial_buffers(id))
      buffers.push_back(in_type(buffer, type));
    Tensors arguments;
    for (const graph::ValueRef& value : model.graph().layer(id).inputs) {
      arguments.push_back(value.is_model_input()
                              ? in_type(inputs[static_cast<size_t>(value.output)], type)
                              : values.at(value));
    }
    const model::ForwardContext context{
        .training = true, .seed = derive_seed(5, hash_name(model.seed_name(id))), .team = team};
    const Tensors outputs = model.layer(id).forward(own, buffers, arguments, context);
    for (size_t o = 0; o < outputs.size(); ++o) values[{id, static_cast<int>(o)}] = outputs[o];
    weights[l] = own;
  }
  Passed result;
  for (const graph::ValueRef& value : model.graph().outputs()) {
    if (values.count(value) > 0) result.output = values.at(value);
  }
  const at::Tensor ramp =
      at::linspace(0.5, 1.5, result.output.numel(), type).view(result.output.sizes());
  const auto gradients = torch::autograd::grad({(result.output * ramp).sum()}, leaves, {}, {},
                                               /*create_graph=*/false, /*allow_unused=*/true);
  size_t next = 0;
  for (const auto& [layer, own] : weights) {
    for (size_t w = 0; w < own.size(); ++w) result.gradients[layer].push_back(gradients[next++]);
  }
  result.output = result.output.detach();
  if (team != nullptr) {
    result.sent_bytes = team->sent_bytes;
    EXPECT_FALSE(team->mistaken);
  }
  return result;
}

/// The largest difference, relative to the largest number, but to no smaller one than `least`.
inline double difference(const at::Tensor& found, const at::Tensor& expected,
                         double least = 1e-30) {
  const double scale = std::max(expected.abs().max().item<double>(), least);
  return (found - expected).abs().max().item<double>() / scale;
}

/// Bytes that member 0 sent.
inline int64_t expect_same(const std::shared_ptr<const model::Model>& whole, const Tensors& inputs,
                           int members, const ShardOptions& options = {}, double tolerance = 1e-12,
                           at::ScalarType type = at::kDouble) {
  const std::vector<StageId> stages(static_cast<size_t>(whole->graph().num_layers()), StageId{0});
  const ShardedModel sharded = shard(whole, stages, {members}, options);
  const Passed expected = pass(*whole, inputs, 3, nullptr, type);
  const auto found =
      model::team_testing::in_team<Passed>(members, [&](model::team_testing::ThreadTeam& team) {
        return pass(sharded.model, inputs, 3, &team, type);
      });
  for (const Passed& member : found)
    EXPECT_LE(difference(member.output, expected.output), tolerance) << whole->name();
  // Some gradients are sums of nothing but rounding errors, such as those of the biases of keys.
  double least = 1e-30;
  for (const auto& [layer, gradients] : expected.gradients) {
    for (const at::Tensor& gradient : gradients)
      least = std::max(least, 1e-3 * gradient.abs().max().item<double>());
  }
  for (const auto& [layer, gradients] : expected.gradients) {
    for (size_t w = 0; w < gradients.size(); ++w) {
      at::Tensor joined = at::full_like(gradients[w], 1e30);
      for (int32_t l = 0; l < sharded.model.graph().num_layers(); ++l) {
        const model::LayerPart& part = *sharded.model.part(LayerId{l});
        if (!part.whole || part.whole->value != layer) continue;
        for (size_t p = 0; p < part.parameters.size(); ++p) {
          if (part.parameters[p].number != w) continue;
          part.parameters[p].put_into(joined,
                                      found[static_cast<size_t>(part.member)].gradients.at(l)[p]);
          const at::Tensor& own = found[static_cast<size_t>(part.member)].gradients.at(l)[p];
          EXPECT_LE(difference(own, part.parameters[p].of(gradients[w]), least), tolerance)
              << whole->graph().layer(LayerId{layer}).name << " weight " << w << ", member "
              << part.member;
        }
      }
      EXPECT_LE(difference(joined, gradients[w], least), tolerance)
          << whole->graph().layer(LayerId{layer}).name << " weight " << w;
    }
  }
  return found.front().sent_bytes;
}

}  // namespace penstock::shard::testing
