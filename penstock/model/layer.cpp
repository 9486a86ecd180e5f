#include "penstock/model/layer.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

constexpr int64_t kTrialSamples = 2;

Tensors zero_tensors(const std::vector<ParameterSpec>& specs) {
  Tensors tensors;
  for (const ParameterSpec& spec : specs) {
    detail::checked_elements(spec.shape, "parameter '" + spec.name + "'");
    tensors.push_back(at::zeros(spec.shape));
  }
  return tensors;
}

Tensors zero_samples(const std::vector<Shape>& shapes) {
  Tensors samples;
  for (const Shape& shape : shapes) {
    detail::checked_elements(shape, "input");
    Shape sizes = shape;
    sizes.insert(sizes.begin(), kTrialSamples);
    samples.push_back(at::zeros(sizes));
  }
  return samples;
}

}  // namespace

std::vector<Shape> Layer::output_shapes(const std::vector<Shape>& inputs) const {
  const c10::AutoGradMode no_grad(false);
  const Tensors weights = zero_tensors(parameters());
  Tensors state = zero_tensors(buffers());
  const Tensors samples = zero_samples(inputs);
  const Tensors outputs = forward(weights, state, samples, {.training = false, .seed = 0});
  std::vector<Shape> shapes;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || output.dim() < 1 || output.size(0) != kTrialSamples) {
      throw ConfigError(fmt::format("output {} should start with the batch dimension", shapes.size()));
    }
    shapes.emplace_back(output.sizes().begin() + 1, output.sizes().end());
  }
  return shapes;
}

}  // namespace penstock::model
