#include "penstock/model/precision.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "penstock/model/float32_layers.h"
#include "penstock/model/lone_team.h"
#include "penstock/model/shapes.h"
#include "penstock/model/torch_compat.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model {

namespace {

constexpr int64_t kTriedSamples = 2;
constexpr uint64_t kTriedSeed = 1;

bool keeps_float32_weights(const Layer& layer) {
  return dynamic_cast<const KeepsFloat32*>(&layer) != nullptr;
}

/// Layers of which one is tried for all.
using Family = std::tuple<std::string, size_t, bool, int>;

Family family_of(const Model& model, LayerId id) {
  const Layer& layer = model.layer(id);
  // Those out of a program may hold other operations besides the one that they are named after.
  return {layer.kind(), model.graph().layer(id).inputs.size(), keeps_float32_weights(layer),
          insists_on_float32(layer) ? id.value : -1};
}

InputSpec spec_of(const Model& model, const graph::ValueRef& value) {
  if (value.is_model_input()) return model.inputs().at(static_cast<size_t>(value.output));
  return {.name = "",
          .shape = model.output_shapes(value.layer).at(static_cast<size_t>(value.output))};
}

/// Of inputs, weights and outputs.
int64_t numbers_of(const Model& model, LayerId id) {
  int64_t numbers = model.parameter_count(id);
  const auto add = [&](const Shape& shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count = saturating_mul(count, size);
    numbers = saturating_add(numbers, count);
  };
  for (const graph::ValueRef& value : model.graph().layer(id).inputs)
    add(spec_of(model, value).shape);
  for (const Shape& shape : model.output_shapes(id)) add(shape);
  return numbers;
}

void run_both_passes(const Model& model, LayerId id, const LayerPrecision& precision,
                     at::Device device) {
  const at::AutoGradMode with_graph(true);
  Tensors inputs;
  Tensors leaves;
  const auto add_leaf = [&](at::Tensor tensor) {
    leaves.push_back(tensor.requires_grad_(true));
    return tensor;
  };
  for (const graph::ValueRef& value : model.graph().layer(id).inputs) {
    const InputSpec spec = spec_of(model, value);
    Shape sizes = spec.shape;
    sizes.insert(sizes.begin(), kTriedSamples);
    if (at::isFloatingType(spec.type))
      inputs.push_back(add_leaf(at::rand(sizes).to(device, precision.activations)));
    else
      inputs.push_back(at::zeros(sizes, at::TensorOptions().dtype(spec.type)).to(device));
  }
  Tensors weights;
  for (const at::Tensor& weight : model.initial_weights(id, kTriedSeed))
    weights.push_back(add_leaf(weight.to(device, precision.weights)));
  Tensors buffers;
  for (const at::Tensor& buffer : model.initial_buffers(id)) buffers.push_back(buffer.to(device));
  const LayerPart* const part = model.part(id);
  LoneTeam team(part == nullptr ? 1 : part->team, part == nullptr ? 0 : part->member);
  const Tensors outputs = forward_in(precision, model.layer(id), weights, buffers, inputs,
                                     {.training = true,
                                      .seed = kTriedSeed,
                                      .device = device,
                                      .team = part == nullptr ? nullptr : &team});
  Tensors roots;
  Tensors gradients;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    gradients.push_back(at::ones_like(output));
  }
  if (roots.empty()) return;
  torch::autograd::grad(roots, leaves, gradients, /*retain_graph=*/{}, /*create_graph=*/false,
                        /*allow_unused=*/true);
}

/// Whether the layer runs in both passes.
bool runs(const Model& model, LayerId id, const LayerPrecision& precision, at::Device device) {
  try {
    run_both_passes(model, id, precision, device);
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception&) {  // layers may say it in their own words
    return false;
  }
}

LayerPrecision tried(const Model& model, LayerId id, at::ScalarType type, at::Device device) {
  if (insists_on_float32(model.layer(id))) {
    const LayerPrecision casts{.activations = type, .weights = at::kFloat, .autocasts = true};
    if (device.is_cuda() && runs(model, id, casts, device)) return casts;
    return {.activations = type, .weights = at::kFloat, .computes_in_float32 = true};
  }
  LayerPrecision precision{.activations = type,
                           .weights = keeps_float32_weights(model.layer(id)) ? at::kFloat : type};
  if (runs(model, id, precision, device)) return precision;
  // An operation does not exist in 16 bits.
  precision.weights = at::kFloat;
  precision.computes_in_float32 = true;
  try {
    run_both_passes(model, id, precision, device);
  } catch (const c10::Error& error) {
    const graph::LayerNode& node = model.graph().layer(id);
    throw ConfigError(fmt::format("layer '{}' ({}) cannot be run: {}", node.name, node.kind,
                                  error.what_without_backtrace()));
  }
  return precision;
}

}  // namespace

bool insists_on_float32(const Layer& layer) {
  return dynamic_cast<const ComputesInFloat32*>(&layer) != nullptr;
}

at::ScalarType scalar_type(FloatType type) {
  return type == FloatType::BFloat16  ? at::kBFloat16
         : type == FloatType::Float16 ? at::kHalf
                                      : at::kFloat;
}

std::vector<LayerPrecision> layer_precisions(const Model& model, Precision precision,
                                             at::Device device) {
  const auto layers = static_cast<size_t>(model.graph().num_layers());
  std::vector<LayerPrecision> result(layers);
  if (!is_short(precision)) return result;
  std::map<Family, LayerId> smallest;
  for (size_t l = 0; l < layers; ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    const auto [entry, is_new] = smallest.try_emplace(family_of(model, id), id);
    if (!is_new && numbers_of(model, id) < numbers_of(model, entry->second)) entry->second = id;
  }
  std::map<Family, LayerPrecision> found;
  for (const auto& [family, id] : smallest)
    found[family] = tried(model, id, scalar_type(float_type(precision)), device);
  for (size_t l = 0; l < layers; ++l)
    result[l] = found.at(family_of(model, LayerId{static_cast<int32_t>(l)}));
  return result;
}

Tensors forward_in(const LayerPrecision& precision, const Layer& layer, TensorSpan weights,
                   MutableTensorSpan buffers, TensorSpan inputs, const ForwardContext& context) {
  if (precision.activations == at::kFloat) return layer.forward(weights, buffers, inputs, context);
  Tensors outputs;
  if (precision.computes_in_float32) {
    Tensors converted;
    converted.reserve(inputs.size());
    for (const at::Tensor& input : inputs)
      converted.push_back(input.is_floating_point() ? as_float32(input) : input);
    outputs = layer.forward(weights, buffers, converted, context);
  } else if (precision.autocasts) {
    const GpuAutocast autocast(precision.activations);
    outputs = layer.forward(weights, buffers, inputs, context);
  } else {
    outputs = layer.forward(weights, buffers, inputs, context);
  }
  for (at::Tensor& output : outputs) {
    if (output.is_floating_point()) output = output.to(precision.activations);
  }
  return outputs;
}

at::Tensor as_activation(const at::Tensor& input, Precision precision) {
  if (!is_short(precision) || !input.defined() || !input.is_floating_point()) return input;
  return input.to(scalar_type(float_type(precision)));
}

at::Tensor as_float32(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

}  // namespace penstock::model
