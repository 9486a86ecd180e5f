#include "penstock/model/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <utility>

#include "penstock/model/shapes.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/rng.h"

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
  }
}

Tensors make_tensors(const std::vector<ParameterSpec>& specs, const std::string& layer, uint64_t layer_seed) {
  const c10::AutoGradMode no_grad(false);
  Tensors tensors;
  for (const ParameterSpec& spec : specs) {
    try {
      tensors.push_back(at::empty(spec.shape, at::TensorOptions().dtype(at::kFloat)));
      fill(tensors.back(), spec.init, derive_seed(layer_seed, tensors.size() - 1));
    } catch (const c10::Error& error) {
      throw RuntimeError(fmt::format("layer '{}': cannot make parameter '{}' of shape {}: {}", layer, spec.name,
                                     detail::shape_text(spec.shape), error.what_without_backtrace()));
    }
  }
  return tensors;
}

}  // namespace

Model::Model(std::string name, graph::ModelGraph graph, std::vector<std::shared_ptr<const Layer>> layers, std::vector<Shape> input_shapes)
    : name_(std::move(name)), graph_(std::move(graph)), layers_(std::move(layers)), input_shapes_(std::move(input_shapes)) {
  if (static_cast<int>(layers_.size()) != graph_.num_layers()) {
    throw ConfigError(fmt::format("model '{}': {} layer objects for {} layers of the graph", name_, layers_.size(), graph_.num_layers()));
  }
  if (static_cast<int>(input_shapes_.size()) != graph_.num_inputs()) {
    throw ConfigError(fmt::format("model '{}': {} input shapes for {} inputs", name_, input_shapes_.size(), graph_.num_inputs()));
  }
  for (const Shape& shape : input_shapes_) detail::checked_elements(shape, fmt::format("model '{}': input", name_));

  int64_t parameters = 0;
  for (int i = 0; i < graph_.num_layers(); ++i) {
    const graph::LayerNode& node = graph_.layer(LayerId{i});
    const Layer* code = layers_[static_cast<size_t>(i)].get();
    if (code == nullptr) throw ConfigError(fmt::format("layer '{}': no layer object", node.name));
    if (code->num_outputs() != node.num_outputs) {
      throw ConfigError(
          fmt::format("layer '{}': {} output(s) in the graph, {} in the code", node.name, node.num_outputs, code->num_outputs()));
    }
    std::vector<Shape> inputs;
    for (const graph::ValueRef& value : node.inputs) {
      const auto output = static_cast<size_t>(value.output);
      inputs.push_back(value.is_model_input() ? input_shapes_.at(output) : output_shapes_.at(value.layer.index()).at(output));
    }
    output_shapes_.push_back(detail::infer_shapes(*code, node.name, inputs));
    parameters += detail::checked_parameter_count(*code, node.name);
    if (parameters > detail::kMaxElements) throw ConfigError(fmt::format("model '{}': more than 2^40 parameters", name_));
  }
}

int64_t Model::parameter_count(LayerId id) const { return detail::checked_parameter_count(layer(id), graph_.layer(id).name); }

int64_t Model::parameter_count() const {
  int64_t total = 0;
  for (int i = 0; i < graph_.num_layers(); ++i) total += parameter_count(LayerId{i});
  return total;
}

Tensors Model::initial_weights(LayerId id, uint64_t seed) const {
  const std::string& layer_name = graph_.layer(id).name;
  return make_tensors(layer(id).parameters(), layer_name, derive_seed(seed, hash_name(layer_name)));
}

Tensors Model::initial_buffers(LayerId id) const {
  const std::string& layer_name = graph_.layer(id).name;
  return make_tensors(layer(id).buffers(), layer_name, hash_name(layer_name));
}

}  // namespace penstock::model
