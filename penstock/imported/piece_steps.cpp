#include "penstock/imported/piece_steps.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/operator_arguments.h"
#include "penstock/imported/program_layer.h"
#include "penstock/imported/special_operators.h"
#include "penstock/imported/stored_values.h"
#include "penstock/imported/symbolic_size.h"
#include "penstock/model/device/devices.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

using exported::Argument;
using exported::TensorArgument;
using graph::ValueRef;

namespace {

/// JSON has no infinities.
Json number_text(double value) {
  if (std::isfinite(value)) return value;
  return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

/// An argument as JSON; sizes as numbers.
class ArgumentJson {
 public:
  using Names = std::map<std::string, std::string>;

  ArgumentJson(const FlatProgram& program, const Symbols& symbols, const Names& names)
      : program_(program), symbols_(symbols), names_(names) {}

  Json operator()(const exported::NoneArgument&) const { return nullptr; }
  Json operator()(const TensorArgument& tensor) const {
    return {{"tensor", names_.at(tensor.name)}};
  }
  Json operator()(const std::optional<TensorArgument>& tensor) const {
    return tensor ? (*this)(*tensor) : Json();
  }
  Json operator()(int64_t value) const { return value; }
  Json operator()(double value) const { return number_text(value); }
  Json operator()(bool value) const { return value; }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const exported::SymIntArgument& size) const {
    return sizes_in(size, program_).front().evaluate(symbols_);
  }
  Json operator()(const exported::SymFloatArgument& value) const {
    if (const auto* number = std::get_if<double>(&value.value)) return number_text(*number);
    throw ConfigError("a number that the program computes");
  }
  Json operator()(const exported::SymBoolArgument& value) const {
    if (const auto* flag = std::get_if<bool>(&value.value)) return *flag;
    throw ConfigError("a condition that the program computes");
  }
  Json operator()(exported::ScalarType type) const { return {{"type", static_cast<int>(type)}}; }
  Json operator()(exported::MemoryFormat order) const {
    return {{"order", static_cast<int>(order)}};
  }
  Json operator()(const exported::LayoutArgument&) const { return {{"layout", "strided"}}; }
  Json operator()(const exported::Device&) const { return {{"device", "own"}}; }
  Json operator()(const exported::GraphArgument&) const { throw ConfigError("a graph of its own"); }
  template <class Value>
  Json operator()(const std::vector<Value>& values) const {
    Json list = Json::array();
    for (const auto& value : values) list.push_back((*this)(static_cast<Value>(value)));
    return list;
  }

 private:
  const FlatProgram& program_;
  const Symbols& symbols_;
  const Names& names_;
};

/// One dropout of one layer.
struct Mask {
  uint64_t layer = 0;  ///< hash of the name that its seed is made of
  uint64_t ordinal = 0;
  model::Shape sizes = {};
  double probability = 0;
};

bool drops(std::string_view target) {
  return is_dropout(target) || is(target, "dropout_") || is(target, "feature_dropout_");
}

bool drops_in_attention(const exported::Node& node) {
  return is(node.target, kAttention) && is_positive(node, "dropout_p", 4);
}

/// Whether the step draws numbers that are no dropout's mask.
bool draws_otherwise(const exported::Node& node) {
  if (drops(node.target)) return false;
  if (draws_uniform(node.target) || draws_normal(node.target) || is_recurrent_with_dropout(node))
    return true;
  const auto handle = find_operator(node.target);
  if (!handle) return false;
  const auto& arguments = handle->schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return inner_type(*argument.type()).kind() == c10::TypeKind::GeneratorType;
  });
}

/// Argument number i of a dropout.
template <class Value>
Value constant_argument(const exported::Node& node, size_t i, Value otherwise) {
  if (i >= node.inputs.size()) return otherwise;
  const auto* const value = std::get_if<Value>(&node.inputs[i].value);
  return value == nullptr ? otherwise : *value;
}

/// Writes a piece's steps, layer by layer.
class StepWriter {
 public:
  StepWriter(const model::Model& model, const PieceBorder& border, int64_t samples)
      : model_(model), border_(border), samples_(samples) {
    for (int l = border.first.value; l <= border.last.value; ++l)
      layers_.push_back(&program_layer(LayerId{l}));
  }

  PieceSteps run() {
    for (size_t k = 0; k < layers_.size(); ++k) {
      const LayerParts& parts = layers_[k]->parts();
      for (size_t i = 0; i < parts.parameters.size(); ++i)
        own_[k][parts.parameters[i]] = add_argument("weight", parts.parameter_specs[i].shape);
    }
    for (size_t k = 0; k < layers_.size(); ++k) {
      const LayerParts& parts = layers_[k]->parts();
      for (size_t i = 0; i < parts.buffers.size(); ++i)
        own_[k][parts.buffers[i]] = add_argument("buffer", parts.buffer_specs[i].shape);
    }
    for (size_t i = 0; i < border_.inputs.size(); ++i) add_input(i);
    for (size_t k = 0; k < layers_.size(); ++k) add_constants(k);
    for (size_t k = 0; k < layers_.size(); ++k) add_steps(k);
    Json outputs = Json::array();
    for (const ValueRef value : border_.outputs) outputs.push_back(values_.at(value));
    const bool shares = layers_.back()->parts().shares_output;
    return {{{"arguments", arguments_},
             {"steps", steps_},
             {"outputs", outputs},
             {"shares_output", shares},
             {"samples", samples_}},
            inputs_,
            [layers = layers_](at::Device device) {
              model::Tensors all;
              for (const ProgramLayer* layer : layers) {
                const model::Tensors& some = layer->constants(device);
                all.insert(all.end(), some.begin(), some.end());
              }
              return all;
            },
            [masks = masks_](uint64_t seed) {
              const at::NoGradGuard no_grad;
              const at::Tensor like = at::empty({0});
              model::Tensors all;
              for (const Mask& mask : masks) {
                const uint64_t own = derive_seed(derive_seed(seed, mask.layer), mask.ordinal);
                all.push_back(dropout_mask(mask.sizes, like, mask.probability,
                                           model::installed_devices().generator(at::kCPU, own)));
              }
              return all;
            }};
  }

 private:
  using Names = ArgumentJson::Names;

  const ProgramLayer& program_layer(LayerId id) const {
    const std::string& name = model_.graph().layer(id).name;
    const auto* layer = dynamic_cast<const ProgramLayer*>(&model_.layer(id));
    if (layer == nullptr) {
      throw ConfigError(
          fmt::format("the layer '{}' is none of a program of torch.export", printable(name)));
    }
    if (const std::string why = why_no_steps(*layer); !why.empty())
      throw ConfigError(fmt::format("the layer '{}' {}", printable(name), why));
    return *layer;
  }

  std::string new_name() { return fmt::format("v{}", next_++); }

  std::string add_argument(const char* role, const model::Shape& sizes,
                           exported::ScalarType type = exported::ScalarType::Float,
                           bool gradient = false) {
    const std::string name = new_name();
    arguments_.push_back({{"name", name},
                          {"role", role},
                          {"type", static_cast<int>(type)},
                          {"sizes", sizes},
                          {"gradient", gradient || role == std::string_view("weight")}});
    return name;
  }

  Symbols symbols_of(const LayerParts& parts) const {
    Symbols symbols = parts.hints;
    if (!parts.batch_symbol.empty()) symbols[parts.batch_symbol] = samples_;
    return symbols;
  }

  /// As the first layer that reads it knows it.
  void add_input(size_t i) {
    const ValueRef value = border_.inputs[i];
    for (size_t k = 0; k < layers_.size(); ++k) {
      const std::vector<ValueRef>& reads = node(k).inputs;
      const auto found = std::find(reads.begin(), reads.end(), value);
      if (found == reads.end()) continue;
      const LayerParts& parts = layers_[k]->parts();
      const std::string& name = parts.inputs[static_cast<size_t>(found - reads.begin())];
      const exported::TensorMeta& meta = layers_[k]->program().tensors.at(name);
      const Symbols symbols = symbols_of(parts);
      model::Shape sizes;
      for (const exported::SymbolicInt& size : meta.sizes)
        sizes.push_back(SizeExpression(size).evaluate(symbols));
      inputs_.push_back({sizes, torch_type(meta.type)});
      const bool learns = border_.input_gradients[i] && at::isFloatingType(inputs_.back().type);
      values_[value] = add_argument("input", sizes, meta.type, learns);
      return;
    }
    PENSTOCK_CHECK(false, i);
  }

  void add_constants(size_t k) {
    const LayerParts& parts = layers_[k]->parts();
    for (const std::string& name : parts.constants) {
      const exported::TensorMeta& meta = layers_[k]->program().tensors.at(name);
      model::Shape sizes;
      for (const exported::SymbolicInt& size : meta.sizes) sizes.push_back(size.value);
      own_[k][name] = add_argument("constant", sizes, meta.type);
    }
  }

  void add_steps(size_t k) {
    const LayerParts& parts = layers_[k]->parts();
    const graph::LayerNode& layer = node(k);
    Names names = own_[k];
    for (size_t i = 0; i < parts.inputs.size(); ++i) {
      std::string name = values_.at(layer.inputs[i]);
      if (parts.copied[i]) {
        const std::string copy = new_name();
        steps_.push_back({{"target", "torch.ops.aten.clone.default"},
                          {"gradient", true},
                          {"inputs", {{{"name", "self"}, {"value", {{"tensor", name}}}}}},
                          {"outputs", {copy}}});
        name = copy;
      }
      names[parts.inputs[i]] = name;
    }
    const Symbols symbols = symbols_of(parts);
    const LayerId id{border_.first.value + static_cast<int32_t>(k)};
    const FlatProgram& program = layers_[k]->program();
    for (size_t s = 0; s < program.steps.size(); ++s) {
      const Step& step = program.steps[s];
      std::string mask;
      if (drops(step.node.target) || drops_in_attention(step.node)) {
        const Mask drawn{.layer = hash_name(model_.seed_name(id)),
                         .ordinal = step.ordinal.value_or(s)};
        mask = add_mask(step.node, program, symbols, drawn);
      }
      add_step(step, program, symbols, names, mask);
    }
    for (size_t o = 0; o < parts.outputs.size(); ++o)
      values_[{id, static_cast<int>(o)}] = names.at(parts.outputs[o]);
  }

  model::Shape sizes_of(const Argument& tensor, const FlatProgram& program,
                        const Symbols& symbols) const {
    model::Shape sizes;
    const std::string& name = std::get<TensorArgument>(tensor).name;
    for (const exported::SymbolicInt& size : program.tensors.at(name).sizes)
      sizes.push_back(SizeExpression(size).evaluate(symbols));
    return sizes;
  }

  /// As OperatorCall draws it; empty: nothing is dropped.
  std::string add_mask(const exported::Node& node, const FlatProgram& program,
                       const Symbols& symbols, Mask mask) {
    mask.sizes = sizes_of(node.inputs.at(0).value, program, symbols);
    if (drops(node.target)) {
      mask.probability = constant_argument(node, 1, 0.5);
      if (!constant_argument(node, 2, true) || mask.probability == 0) return {};
      if (is(node.target, "feature_dropout") || is(node.target, "feature_dropout_"))
        std::fill(mask.sizes.begin() + 2, mask.sizes.end(), 1);
    } else {
      const model::Shape keys = sizes_of(node.inputs.at(1).value, program, symbols);
      mask.sizes.back() = keys.at(keys.size() - 2);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i].name == "dropout_p" || (node.inputs[i].name.empty() && i == 4))
          mask.probability = constant_argument(node, i, 0.0);
      }
    }
    masks_.push_back(mask);
    return add_argument("mask", mask.sizes);
  }

  void add_step(const Step& step, const FlatProgram& program, const Symbols& symbols, Names& names,
                const std::string& mask) {
    const exported::Node& node = step.node;
    const ArgumentJson text(program, symbols, names);
    Json inputs = Json::array();
    try {
      for (const exported::NamedArgument& one : node.inputs) {
        Json value = one.name == "sparse" ? Json(false) : std::visit(text, one.value);
        inputs.push_back(
            {{"name", one.name}, {"value", std::move(value)}, {"keyword", one.keyword}});
      }
    } catch (const Error& error) {
      throw ConfigError(fmt::format("{}: {}", place_of(node), error.what()));
    }
    std::string target = node.target;
    if (drops(target)) {
      const bool in_place = is(target, "dropout_") || is(target, "feature_dropout_");
      target = mask.empty() ? "torch.ops.aten.alias.default"
               : in_place   ? "torch.ops.aten.mul_.Tensor"
                            : "torch.ops.aten.mul.Tensor";
      inputs = {inputs.front()};
      inputs.front()["keyword"] = false;
    }
    if (!mask.empty()) {
      inputs.push_back(
          {{"name", "keep"}, {"value", {{"tensor", mask}}}, {"keyword", !drops(node.target)}});
      if (!drops(node.target)) target = "attention";
    }
    // As in OperatorCall.
    if (target == "torch.ops.aten.view.default") target = "torch.ops.aten.reshape.default";
    Json outputs = Json::array();
    for (const Argument& output : node.outputs) {
      Json made = Json::array();
      for (const std::string& name : tensor_names(output))
        made.push_back(name.empty() ? name : names[name] = new_name());
      const bool is_list = std::holds_alternative<std::vector<TensorArgument>>(output);
      outputs.push_back(is_list || made.empty() ? made : made.front());
    }
    steps_.push_back({{"target", std::move(target)},
                      {"gradient", step.gradient},
                      {"inputs", std::move(inputs)},
                      {"outputs", std::move(outputs)}});
  }

  const graph::LayerNode& node(size_t k) const {
    return model_.graph().layer(LayerId{border_.first.value + static_cast<int32_t>(k)});
  }

  const model::Model& model_;
  const PieceBorder& border_;
  int64_t samples_;
  std::vector<const ProgramLayer*> layers_;
  std::map<size_t, Names> own_;  ///< by layer: of weights, buffers and constants
  std::map<ValueRef, std::string> values_;
  std::vector<PieceSteps::Input> inputs_;
  std::vector<Mask> masks_;
  Json arguments_ = Json::array();
  Json steps_ = Json::array();
  int next_ = 0;
};

}  // namespace

std::string why_no_steps(const model::Layer& layer) {
  const auto* const own = dynamic_cast<const ProgramLayer*>(&layer);
  if (own == nullptr) return {};
  if (!own->parts().packed.empty()) return "has frozen weights of 8 bits";
  for (const Step& step : own->program().steps) {
    if (draws_otherwise(step.node))
      return fmt::format("takes random numbers that are no dropout ({})", place_of(step.node));
  }
  return {};
}

PieceSteps steps_of_piece(const model::Model& model, const PieceBorder& border, int64_t samples) {
  return StepWriter(model, border, samples).run();
}

}  // namespace penstock::imported
