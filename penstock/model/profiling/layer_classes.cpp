#include "penstock/model/profiling/layer_classes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "penstock/model/known_code.h"
#include "penstock/model/profiling/values.h"

namespace penstock::model::detail {

namespace {

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
    return makes_result(id) ? std::nullopt : work(id);
  }

  /// Nothing: the layer does not say what it does.
  std::optional<std::string> work(LayerId id) const {
    const Layer& layer = model_.layer(id);
    const auto* const code = dynamic_cast<const KnownCode*>(&layer);
    if (code == nullptr) return std::nullopt;
    std::string key = fmt::format("{}\n{}\nweights{}\nbuffers{}\n", layer.kind(), code->code(),
                                  shapes_of(layer.parameters()), shapes_of(layer.buffers()));
    for (const graph::ValueRef& input : model_.graph().layer(id).inputs) {
      const std::string value = fmt::format("{} {}", text_of(shape_of(model_, input)),
                                            static_cast<int>(type_of(model_, input)));
      key += input.is_model_input()
                 ? fmt::format("input {} {}\n", input.output, value)
                 : fmt::format("value {} {}\n", value,
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

namespace penstock::model {

std::string work_text(const Model& model) {
  const detail::Keys keys(model);
  const auto place = [](const graph::ValueRef& value) {
    return fmt::format(" {}/{}", value.layer.value, value.output);
  };
  std::string text = model.name() + '\n';
  for (int32_t l = 0; l < model.graph().num_layers(); ++l) {
    const LayerId id{l};
    const graph::LayerNode& node = model.graph().layer(id);
    const std::optional<std::string> work = keys.work(id);
    if (!work) return {};
    text +=
        fmt::format("{}\n{}keeps {}\nreads", node.name, *work, model.layer(id).constant_bytes());
    for (const graph::ValueRef& input : node.inputs) text += place(input);
    for (const graph::WeightTie& tie : node.ties)
      text +=
          fmt::format(" tied {} {}/{}", tie.parameter, tie.owner.layer.value, tie.owner.parameter);
    text += '\n';
  }
  text += "results";
  for (const graph::ValueRef& result : model.graph().outputs()) text += place(result);
  return text;
}

}  // namespace penstock::model
