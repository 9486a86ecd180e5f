#include "penstock/model/layer.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model {

std::string state_key(const std::string& layer, const ParameterSpec& spec) {
  return spec.key.empty() ? layer + "." + spec.name : spec.key;
}

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

int64_t Layer::constant_bytes() const {
  int64_t numbers = 0;
  for (const ParameterSpec& spec : buffers())
    numbers =
        saturating_add(numbers, detail::checked_elements(spec.shape, "buffer '" + spec.name + "'"));
  return saturating_mul(numbers, static_cast<int64_t>(sizeof(float)));
}

std::vector<Shape> Layer::output_shapes(const std::vector<Shape>& inputs) const {
  const c10::AutoGradMode no_grad(false);
  const Tensors weights = zero_tensors(parameters());
  Tensors state = zero_tensors(buffers());
  const Tensors samples = zero_samples(inputs);
  const Tensors outputs = forward(weights, state, samples, {.training = false, .seed = 0});
  std::vector<Shape> shapes;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || output.dim() < 1 || output.size(0) != kTrialSamples) {
      throw ConfigError(
          fmt::format("output {} should start with the batch dimension", shapes.size()));
    }
    shapes.emplace_back(output.sizes().begin() + 1, output.sizes().end());
  }
  return shapes;
}

profile::LayerWork Layer::work(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
                               int64_t batch) const {
  const int64_t in = detail::batch_numbers(inputs, batch);
  const int64_t out = detail::batch_numbers(outputs, batch);
  std::vector<Shape> shapes;
  for (const ParameterSpec& spec : parameters()) shapes.push_back(spec.shape);
  const int64_t weights = detail::batch_numbers(shapes, 1);
  profile::LayerWork work;
  work.forward.push_back(detail::elementwise({in, weights, out}));
  work.backward_inputs.push_back(detail::elementwise({in, weights, out, in}));
  if (weights > 0) work.backward_weights.push_back(detail::elementwise({in, out, weights}));
  work.stash_bytes = detail::tensor_bytes(out);
  return work;
}

}  // namespace penstock::model
