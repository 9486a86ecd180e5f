#include "penstock/model/profiling/layer_classes.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "penstock/model/known_code.h"
#include "penstock/model/random_input.h"

namespace penstock::model::detail {

namespace {

const KnownCode* known_code(const Layer& layer) { return dynamic_cast<const KnownCode*>(&layer); }

const Shape& shape_of(const Model& model, const graph::ValueRef& value) {
  const auto output = static_cast<size_t>(value.output);
  return value.is_model_input() ? model.input_shapes().at(output)
                                : model.output_shapes(value.layer).at(output);
}

std::string shapes_of(const std::vector<ParameterSpec>& specs) {
  std::string text;
  for (const ParameterSpec& spec : specs)
    text += fmt::format(" {}:{}", fmt::join(spec.shape, "x"), static_cast<int>(spec.stored_as));
  return text;
}

/// What is equal in alike layers.
class Keys {
 public:
  explicit Keys(const Model& model)
      : model_(model),
        has_gradients_(layers_with_gradients(model)),
        uses_(uses_of_outputs(model.graph())) {}

  /// Nothing: the layer is like no other.
  std::optional<std::string> of(LayerId id) const {
    const Layer& layer = model_.layer(id);
    const KnownCode* const code = known_code(layer);
    if (code == nullptr || makes_result(id)) return std::nullopt;
    std::string key = fmt::format("{}\n{}\nweights{}\nbuffers{}\n", layer.kind(), code->code(),
                                  shapes_of(layer.parameters()), shapes_of(layer.buffers()));
    for (const graph::ValueRef& input : model_.graph().layer(id).inputs) {
      key += input.is_model_input()
                 ? fmt::format("input {}\n", input.output)
                 : fmt::format("value {} {} {}\n", text_of(shape_of(model_, input)),
                               static_cast<int>(type_of(model_, input)),
                               static_cast<bool>(has_gradients_[input.layer.index()]));
    }
    const std::vector<Shape>& outputs = model_.output_shapes(id);
    for (size_t o = 0; o < outputs.size(); ++o)
      key += fmt::format("output {} read {} times\n", text_of(outputs[o]), uses_[id.index()][o]);
    return key;
  }

 private:
  static std::string text_of(const Shape& shape) {
    return fmt::format("{}", fmt::join(shape, "x"));
  }

  bool makes_result(LayerId id) const {
    const std::vector<graph::ValueRef>& results = model_.graph().outputs();
    return std::any_of(results.begin(), results.end(),
                       [id](const graph::ValueRef& result) { return result.layer == id; });
  }

  const Model& model_;
  std::vector<bool> has_gradients_;
  std::vector<std::vector<int>> uses_;
};

}  // namespace

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
  const KnownCode* const code = known_code(model.layer(value.layer));
  const std::vector<at::ScalarType> types =
      code == nullptr ? std::vector<at::ScalarType>{} : code->output_types();
  return types.empty() ? at::kFloat : types.at(output);
}

at::Tensor made_up(const Model& model, const graph::ValueRef& value, int64_t batch,
                   at::Generator& generator) {
  const auto output = static_cast<size_t>(value.output);
  const KnownCode* const code = known_code(model.layer(value.layer));
  at::Tensor values = code == nullptr ? at::Tensor() : code->empty_output(output, batch);
  if (!values.defined()) {
    const InputSpec spec{
        .name = {}, .shape = shape_of(model, value), .type = type_of(model, value)};
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

std::vector<LayerClass> layer_classes(const Model& model, LayerId first, LayerId last) {
  const Keys keys(model);
  std::vector<LayerClass> classes;
  std::map<std::string, size_t> class_of;
  for (LayerId id = first; id <= last; ++id.value) {
    const std::optional<std::string> key = keys.of(id);
    if (!key) continue;
    const auto [place, is_new] = class_of.emplace(*key, classes.size());
    if (is_new) classes.emplace_back();
    classes[place->second].push_back(id);
  }
  std::erase_if(classes, [](const LayerClass& one) { return one.size() < 2; });
  return classes;
}

}  // namespace penstock::model::detail
