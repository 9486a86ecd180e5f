// A layer with made up weights and inputs, for tests.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <utility>
#include <vector>

#include "penstock/model/layers/builtin.h"

namespace penstock::model {

inline at::Tensor random(const Shape& sizes, uint64_t seed) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kDouble))
      .normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

/// A layer with random weights and inputs in double precision, so that finite differences are
/// accurate.
struct Trial {
  detail::LayerPtr layer;
  Tensors weights;
  Tensors buffers;
  Tensors inputs;
  std::vector<Shape> input_shapes;
  ForwardContext context{.training = true, .seed = 11};

  /// `tokens`: the last input is whole numbers below it.
  Trial(detail::LayerPtr code, std::vector<Shape> shapes, int64_t batch = 2, int64_t tokens = 0)
      : layer(std::move(code)), input_shapes(std::move(shapes)) {
    uint64_t seed = 1;
    for (const ParameterSpec& spec : layer->parameters())
      weights.push_back(random(spec.shape, ++seed));
    for (const ParameterSpec& spec : layer->buffers())
      buffers.push_back(random(spec.shape, ++seed).abs());
    for (Shape shape : input_shapes) {
      shape.insert(shape.begin(), batch);
      inputs.push_back(random(shape, ++seed));
    }
    if (tokens > 0)
      inputs.back() = at::arange(inputs.back().numel()).view_as(inputs.back()) % tokens;
  }

  bool has_tokens() const { return !inputs.back().is_floating_point(); }
  /// What has a gradient.
  Tensors leaves() const {
    Tensors all = inputs;
    if (has_tokens()) all.pop_back();
    all.insert(all.end(), weights.begin(), weights.end());
    return all;
  }

  Tensors run() { return layer->forward(weights, buffers, inputs, context); }

  /// A scalar that depends on every output number differently.
  at::Tensor scalar() {
    at::Tensor total = at::zeros({}, at::kDouble);
    uint64_t seed = 100;
    for (const at::Tensor& output : run())
      total = total + (output * random(output.sizes().vec(), ++seed)).sum();
    return total;
  }
};

}  // namespace penstock::model
