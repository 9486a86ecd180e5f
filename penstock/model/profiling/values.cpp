#include "penstock/model/profiling/values.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "penstock/model/float32_layers.h"
#include "penstock/model/known_code.h"
#include "penstock/model/random_input.h"

namespace penstock::model::detail {

namespace {

const KnownCode* code_of_maker(const Model& model, const graph::ValueRef& value) {
  return dynamic_cast<const KnownCode*>(&model.layer(value.layer));
}

}  // namespace

const Shape& shape_of(const Model& model, const graph::ValueRef& value) {
  const auto output = static_cast<size_t>(value.output);
  return value.is_model_input() ? model.input_shapes().at(output)
                                : model.output_shapes(value.layer).at(output);
}

std::vector<bool> layers_with_gradients(const Model& model) {
  std::vector<bool> found;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const std::vector<graph::ValueRef>& inputs = model.graph().layer(LayerId{l}).inputs;
    found.push_back(!model.layer(LayerId{l}).parameters().empty() ||
                    std::any_of(inputs.begin(), inputs.end(), [&](const graph::ValueRef& input) {
                      return !input.is_model_input() && found[input.layer.index()] &&
                             at::isFloatingType(type_of(model, input));
                    }));
  }
  return found;
}

at::ScalarType type_of(const Model& model, const graph::ValueRef& value) {
  const auto output = static_cast<size_t>(value.output);
  if (value.is_model_input()) return model.inputs().at(output).type;
  if (dynamic_cast<const KeepsTypes*>(&model.layer(value.layer)) != nullptr)
    return type_of(model, model.graph().layer(value.layer).inputs.front());
  const KnownCode* const code = code_of_maker(model, value);
  const std::vector<at::ScalarType> types =
      code == nullptr ? std::vector<at::ScalarType>{} : code->output_types();
  return types.empty() ? at::kFloat : types.at(output);
}

at::Tensor made_up(const Model& model, const graph::ValueRef& value, int64_t batch,
                   at::Generator& generator) {
  const auto output = static_cast<size_t>(value.output);
  const KnownCode* const code = code_of_maker(model, value);
  at::Tensor values = code == nullptr ? at::Tensor() : code->empty_output(output, batch);
  // It knows the sizes of the example alone.
  const Shape shape = shape_of(model, value);
  const int64_t numbers_of_one =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (values.defined() && values.numel() != batch * numbers_of_one) values = at::Tensor();
  if (!values.defined()) {
    const InputSpec spec{.name = {}, .shape = shape, .type = type_of(model, value)};
    return random_input(spec, batch, generator);
  }
  const at::Tensor numbers =
      at::empty(values.sizes(), at::TensorOptions().dtype(at::kFloat)).normal_(0, 1, generator);
  // Numbers that lie on top of each other cannot be written.
  if (at::has_internal_overlap(values) == at::MemOverlap::Yes)
    return numbers.to(values.scalar_type());
  return values.copy_(numbers);
}

std::vector<std::vector<int>> uses_of_outputs(const graph::ModelGraph& graph) {
  std::vector<std::vector<int>> uses;
  for (const graph::LayerNode& layer : graph.layers())
    uses.emplace_back(static_cast<size_t>(layer.num_outputs), 0);
  const auto count = [&](const graph::ValueRef& value) {
    if (!value.is_model_input()) ++uses[value.layer.index()][static_cast<size_t>(value.output)];
  };
  for (const graph::LayerNode& layer : graph.layers())
    std::for_each(layer.inputs.begin(), layer.inputs.end(), count);
  std::for_each(graph.outputs().begin(), graph.outputs().end(), count);
  return uses;
}

}  // namespace penstock::model::detail
