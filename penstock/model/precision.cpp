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
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/model/float32_layers.h"
#include "penstock/model/known_code.h"
#include "penstock/model/lone_team.h"
#include "penstock/model/shapes.h"
#include "penstock/model/torch_compat.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/processor.h"

namespace penstock::model {

namespace {

constexpr int64_t kTriedSamples = 2;
constexpr uint64_t kTriedSeed = 1;

/// Whether the processor multiplies numbers of this type by instructions of its own. libtorch has
/// other ways, which take longer than float32.
bool has_products_of(at::ScalarType type) {
  return multiplies(type == at::kHalf ? FloatType::Float16 : FloatType::BFloat16);
}

/// The layers that share a weight with another one.
std::set<LayerId> tied_layers(const Model& model) {
  std::set<LayerId> tied;
  for (const graph::TieGroup& group : graph::tie_groups(model.graph())) {
    for (const graph::ParameterRef& parameter : group) tied.insert(parameter.layer);
  }
  return tied;
}

bool keeps_float32_weights(const Layer& layer) {
  return dynamic_cast<const KeepsFloat32*>(&layer) != nullptr;
}

/// Layers of which one is tried for all: the last is the code of those that autocast may compute.
using Family = std::tuple<std::string, size_t, bool, std::string>;

Family family_of(const Model& model, LayerId id, bool is_tied) {
  const Layer& layer = model.layer(id);
  // Those out of a program may hold other operations besides the one that they are named after.
  std::string operations;
  if (insists_on_float32(layer)) {
    const auto* const known = dynamic_cast<const KnownCode*>(&layer);
    operations = known != nullptr ? known->code() : model.graph().layer(id).name;
    if (is_tied) operations += "tied";
  }
  return {layer.kind(), model.graph().layer(id).inputs.size(), keeps_float32_weights(layer),
          std::move(operations)};
}

InputSpec spec_of(const Model& model, const graph::ValueRef& value) {
  if (value.is_model_input()) return model.inputs().at(static_cast<size_t>(value.output));
  return {.name = "",
          .shape = model.output_shapes(value.layer).at(static_cast<size_t>(value.output))};
}

/// Of the layers that have types of their own. The ends of a tie have one weight, so one type.
std::map<LayerId, at::ScalarType> own_weight_types(const Model& model) {
  std::map<LayerId, at::ScalarType> types;
  for (int32_t l = 0; l < model.graph().num_layers(); ++l) {
    const auto* const layer = dynamic_cast<const MayHaveOwnTypes*>(&model.layer(LayerId{l}));
    const auto type = layer == nullptr ? std::nullopt : layer->own_weight_type();
    if (type) types.emplace(LayerId{l}, *type);
  }
  const std::vector<graph::TieGroup> groups = graph::tie_groups(model.graph());
  for (bool changed = !types.empty(); changed;) {
    changed = false;
    for (const graph::TieGroup& group : groups) {
      const auto keeps = [&](const graph::ParameterRef& parameter) {
        const auto found = types.find(parameter.layer);
        return found == types.end() || found->second == at::kFloat;
      };
      if (std::none_of(group.begin(), group.end(), keeps)) continue;
      for (const graph::ParameterRef& parameter : group) {
        const auto found = types.find(parameter.layer);
        if (found == types.end() || found->second == at::kFloat) continue;
        found->second = at::kFloat;
        changed = true;
      }
    }
  }
  return types;
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

LayerPrecision tried(const Model& model, LayerId id, bool is_tied, at::ScalarType type,
                     at::Device device) {
  if (const auto* const layer = dynamic_cast<const ComputesInFloat32*>(&model.layer(id))) {
    LayerPrecision casts{.activations = type, .weights = at::kFloat, .autocasts = true};
    // Both ends of a tie have one weight.
    if (layer->has_products_alone() && !is_tied) casts.weights = type;
    const bool pays = device.is_cuda() || has_products_of(type);
    if (pays && runs(model, id, casts, device)) return casts;
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
  const std::map<LayerId, at::ScalarType> own = own_weight_types(model);
  for (const auto& [id, type] : own) result[id.index()].weights = type;
  if (!is_short(precision)) return result;
  const std::set<LayerId> tied = tied_layers(model);
  std::map<Family, std::vector<LayerId>> families;
  for (size_t l = 0; l < layers; ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    if (own.contains(id)) continue;
    families[family_of(model, id, tied.contains(id))].push_back(id);
  }
  const auto is_smaller = [&](LayerId a, LayerId b) {
    return numbers_of(model, a) < numbers_of(model, b);
  };
  for (const auto& [family, ids] : families) {
    const LayerId smallest = *std::min_element(ids.begin(), ids.end(), is_smaller);
    const LayerPrecision found =
        tried(model, smallest, tied.contains(smallest), scalar_type(float_type(precision)), device);
    for (const LayerId id : ids) result[id.index()] = found;
  }
  return result;
}

bool has_own_types(const Model& model) { return !own_weight_types(model).empty(); }

at::ScalarType output_type(const Model& model, const graph::ValueRef& output,
                           at::ScalarType activations) {
  const Layer& layer = model.layer(output.layer);
  if (dynamic_cast<const KeepsTypes*>(&layer) != nullptr) {
    const graph::ValueRef& input = model.graph().layer(output.layer).inputs.front();
    return input.is_model_input() ? activations : output_type(model, input, activations);
  }
  const auto* const own = dynamic_cast<const MayHaveOwnTypes*>(&layer);
  const auto* const known = dynamic_cast<const KnownCode*>(&layer);
  if (own == nullptr || known == nullptr || !own->own_weight_type()) return activations;
  return known->output_types().at(static_cast<size_t>(output.output));
}

int64_t output_number_bytes(const Model& model, const graph::ValueRef& output,
                            Precision precision) {
  const at::ScalarType type = output_type(model, output, scalar_type(float_type(precision)));
  return static_cast<int64_t>(c10::elementSize(type));
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
    const Autocast autocast(context.device.is_cuda(), precision.activations);
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
