#include "penstock/model/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/model/shapes.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::model {
namespace {

void fill(at::Tensor& tensor, const Init& init, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  switch (init.rule) {
    case Init::Rule::Constant:
      tensor.fill_(init.value);
      break;
    case Init::Rule::Uniform:
      tensor.uniform_(-init.value, init.value, generator);
      break;
    case Init::Rule::Normal:
      tensor.normal_(0, init.value, generator);
      break;
    case Init::Rule::Given:
      tensor.copy_(init.values());
      break;
  }
}

at::Tensor make_tensor(const ParameterSpec& spec, const std::string& layer, uint64_t seed) {
  const c10::AutoGradMode no_grad(false);
  try {
    at::Tensor tensor = at::empty(spec.shape, at::TensorOptions().dtype(at::kFloat));
    fill(tensor, spec.init, seed);
    return tensor;
  } catch (const c10::Error& error) {
    throw RuntimeError(fmt::format("layer '{}': cannot make parameter '{}' of shape {}: {}", layer,
                                   spec.name, detail::shape_text(spec.shape),
                                   error.what_without_backtrace()));
  }
}

}  // namespace

Model::Model(std::string name, graph::ModelGraph graph,
             std::vector<std::shared_ptr<const Layer>> layers, std::vector<Shape> input_shapes)
    : name_(std::move(name)),
      graph_(std::move(graph)),
      layers_(std::move(layers)),
      input_shapes_(std::move(input_shapes)) {
  if (static_cast<int>(layers_.size()) != graph_.num_layers()) {
    throw ConfigError(fmt::format("model '{}': {} layer objects for {} layers of the graph", name_,
                                  layers_.size(), graph_.num_layers()));
  }
  if (static_cast<int>(input_shapes_.size()) != graph_.num_inputs()) {
    throw ConfigError(fmt::format("model '{}': {} input shapes for {} inputs", name_,
                                  input_shapes_.size(), graph_.num_inputs()));
  }
  for (const Shape& shape : input_shapes_) {
    detail::checked_elements(shape, fmt::format("model '{}': input", name_));
    const size_t number = inputs_.size() + 1;
    inputs_.push_back(
        {.name = number == 1 ? "input" : fmt::format("input{}", number), .shape = shape});
  }

  int64_t parameters = 0;
  for (int i = 0; i < graph_.num_layers(); ++i) {
    const graph::LayerNode& node = graph_.layer(LayerId{i});
    const Layer* code = layers_[static_cast<size_t>(i)].get();
    if (code == nullptr) throw ConfigError(fmt::format("layer '{}': no layer object", node.name));
    if (code->num_outputs() != node.num_outputs) {
      throw ConfigError(fmt::format("layer '{}': {} output(s) in the graph, {} in the code",
                                    node.name, node.num_outputs, code->num_outputs()));
    }
    std::vector<Shape> inputs;
    for (const graph::ValueRef& value : node.inputs) {
      const auto output = static_cast<size_t>(value.output);
      inputs.push_back(value.is_model_input() ? input_shapes_.at(output)
                                              : output_shapes_.at(value.layer.index()).at(output));
    }
    output_shapes_.push_back(detail::infer_shapes(*code, node.name, inputs));
    parameters += detail::checked_parameter_count(*code, node.name);
    if (parameters > detail::kMaxElements)
      throw ConfigError(fmt::format("model '{}': more than 2^40 parameters", name_));
    parameter_count_ += own_parameters(LayerId{i});
  }
}

Model Model::for_inputs(const std::vector<Shape>& shapes) const {
  Model resized(name_, graph_, layers_, shapes);
  resized.extra_state_ = extra_state_;
  resized.adapters_ = adapters_;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    resized.inputs_[i] = inputs_[i];
    resized.inputs_[i].shape = shapes[i];
  }
  resized.auxiliary_weights_ = auxiliary_weights_;
  resized.whole_ = whole_;
  resized.parts_ = parts_;
  resized.returns_loss_ = returns_loss_;
  resized.takes_channels_last_ = takes_channels_last_;
  return resized;
}

int64_t Model::own_parameters(LayerId id) const {
  const graph::LayerNode& node = graph_.layer(id);
  const std::vector<ParameterSpec> specs = layer(id).parameters();
  int64_t count = parameter_count(id);
  for (const graph::WeightTie& tie : node.ties) {
    const std::string& owner = graph_.layer(tie.owner.layer).name;
    const std::vector<ParameterSpec> owned = layer(tie.owner.layer).parameters();
    const auto borrowed = static_cast<size_t>(tie.parameter);
    const auto lent = static_cast<size_t>(tie.owner.parameter);
    if (borrowed >= specs.size() || lent >= owned.size()) {
      throw ConfigError(
          fmt::format("layer '{}' ties its parameter {} to parameter {} of '{}': they have {} and "
                      "{} parameters",
                      node.name, borrowed, lent, owner, specs.size(), owned.size()));
    }
    if (specs[borrowed].shape != owned[lent].shape) {
      throw ConfigError(fmt::format(
          "layer '{}' cannot share '{}' of shape {} with '{}' of layer '{}', whose shape is {}",
          node.name, specs[borrowed].name, detail::shape_text(specs[borrowed].shape),
          owned[lent].name, owner, detail::shape_text(owned[lent].shape)));
    }
    count -=
        detail::checked_elements(specs[borrowed].shape, "parameter '" + specs[borrowed].name + "'");
  }
  return count;
}

void Model::set_parts(std::shared_ptr<const Model> whole, std::vector<LayerPart> parts) {
  PENSTOCK_CHECK(parts.size() == layers_.size(), parts.size(), "parts for", layers_.size(),
                 "layers");
  whole_ = std::move(whole);
  parts_ = std::move(parts);
}

const std::string& Model::seed_name(LayerId id) const {
  const LayerPart* const found = part(id);
  return found != nullptr && found->whole ? whole_->graph().layer(*found->whole).name
                                          : graph_.layer(id).name;
}

void Model::set_inputs(std::vector<InputSpec> inputs) {
  const bool fits =
      std::equal(inputs.begin(), inputs.end(), input_shapes_.begin(), input_shapes_.end(),
                 [](const InputSpec& input, const Shape& shape) { return input.shape == shape; });
  if (!fits) {
    throw ConfigError(fmt::format("model '{}': the inputs' shapes are not those of its {} inputs",
                                  name_, input_shapes_.size()));
  }
  inputs_ = std::move(inputs);
}

const Shape& Model::output_shape() const {
  const graph::ValueRef& output = graph_.outputs().front();
  return output.is_model_input()
             ? input_shapes_.at(static_cast<size_t>(output.output))
             : output_shapes(output.layer).at(static_cast<size_t>(output.output));
}

int64_t Model::parameter_count(LayerId id) const {
  return detail::checked_parameter_count(layer(id), graph_.layer(id).name);
}

std::vector<int64_t> Model::tied_bytes(LayerId id) const {
  std::vector<int64_t> bytes;
  const std::vector<ParameterSpec> specs = layer(id).parameters();
  for (const graph::WeightTie& tie : graph_.layer(id).ties) {
    const int64_t numbers =
        detail::checked_elements(specs.at(static_cast<size_t>(tie.parameter)).shape, "parameter");
    bytes.push_back(numbers * static_cast<int64_t>(sizeof(float)));
  }
  return bytes;
}

namespace {

Tensors parts_of(const std::vector<TensorPart>& parts, const Tensors& whole) {
  Tensors result;
  for (const TensorPart& part : parts) result.push_back(part.of(whole[part.number]));
  return result;
}

}  // namespace

Tensors Model::initial_weights(LayerId id, uint64_t seed) const {
  if (const LayerPart* const found = part(id)) {
    if (found->parameters.empty()) return {};
    return parts_of(found->parameters, whole_->initial_weights(*found->whole, seed));
  }
  Tensors tensors;
  const auto count = static_cast<int>(layer(id).parameters().size());
  for (int i = 0; i < count; ++i) {
    const graph::ParameterRef owner = graph_.owner({id, i});
    const std::string& name = graph_.layer(owner.layer).name;
    const auto index = static_cast<size_t>(owner.parameter);
    ParameterSpec spec = layer(owner.layer).parameters()[index];
    if (const auto found = initial_.find(owner); found != initial_.end()) spec.init = found->second;
    tensors.push_back(
        make_tensor(spec, name, derive_seed(derive_seed(seed, hash_name(name)), index)));
  }
  return tensors;
}

Tensors Model::initial_buffers(LayerId id) const {
  if (const LayerPart* const found = part(id)) {
    if (found->buffers.empty()) return {};
    return parts_of(found->buffers, whole_->initial_buffers(*found->whole));
  }
  const std::string& name = graph_.layer(id).name;
  Tensors tensors;
  for (const ParameterSpec& spec : layer(id).buffers())
    tensors.push_back(make_tensor(spec, name, derive_seed(hash_name(name), tensors.size())));
  return tensors;
}

}  // namespace penstock::model
