#include "penstock/model/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

uint64_t next_builder_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

/// "layer 'second' (conv2d)", or without the name when the caller gave none.
std::string describe(const std::string& kind, const std::string& name) {
  return name.empty() ? fmt::format("layer of kind {}", kind)
                      : fmt::format("layer '{}' ({})", name, kind);
}

/// Calls a maker of a builtin layer; its errors get this layer's name.
template <class Maker>
detail::LayerPtr make(const char* kind, const std::string& name, const Maker& maker) {
  try {
    return maker();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", describe(kind, name), error.what()));
  }
}

int64_t channels_of(const Value& x) {
  if (x.shape.size() != 3) {
    throw ConfigError(fmt::format("expected an input of shape [channels, height, width], found {}",
                                  detail::shape_text(x.shape)));
  }
  return x.shape[0];
}

}  // namespace

ModelBuilder::ModelBuilder(std::string name) : name_(std::move(name)), id_(next_builder_id()) {}

Value ModelBuilder::input(Shape shape) {
  detail::checked_elements(shape, fmt::format("model '{}': input", name_));
  input_shapes_.push_back(shape);
  return {graph::ValueRef::model_input(static_cast<int>(input_shapes_.size()) - 1),
          std::move(shape), id_};
}

Value ModelBuilder::features(const std::string& name, Shape shape) {
  named_inputs_[input_shapes_.size()] = {.name = name, .shape = shape};
  return input(std::move(shape));
}

Value ModelBuilder::tokens(const std::string& name, Shape shape, int64_t values) {
  detail::check_range(values, 1, detail::kMaxElements, "values");
  named_inputs_[input_shapes_.size()] = {
      .name = name, .shape = shape, .type = at::kLong, .values = values};
  return input(std::move(shape));
}

Value ModelBuilder::conv2d(const Value& x, const Conv2dOptions& options) {
  return apply_made("conv2d", options.name, {x},
                    [&] { return detail::make_conv2d(channels_of(x), options); });
}

Value ModelBuilder::linear(const Value& x, const LinearOptions& options) {
  return apply_made("linear", options.name, {x}, [&] {
    if (x.shape.empty()) throw ConfigError("expected an input with at least one dimension");
    return detail::make_linear(x.shape.back(), options);
  });
}

Value ModelBuilder::batch_norm2d(const Value& x, const BatchNormOptions& options) {
  return apply_made("batch_norm2d", options.name, {x},
                    [&] { return detail::make_batch_norm2d(channels_of(x), options); });
}

Value ModelBuilder::relu(const Value& x, const std::string& name) {
  return apply_made("relu", name, {x}, detail::make_relu);
}

Value ModelBuilder::tanh(const Value& x, const std::string& name) {
  return apply_made("tanh", name, {x}, detail::make_tanh);
}

Value ModelBuilder::max_pool2d(const Value& x, const Pool2dOptions& options) {
  return apply_made("max_pool2d", options.name, {x},
                    [&] { return detail::make_max_pool2d(options); });
}

Value ModelBuilder::avg_pool2d(const Value& x, const Pool2dOptions& options) {
  return apply_made("avg_pool2d", options.name, {x},
                    [&] { return detail::make_avg_pool2d(options); });
}

Value ModelBuilder::adaptive_avg_pool2d(const Value& x, int64_t size, const std::string& name) {
  return apply_made("adaptive_avg_pool2d", name, {x},
                    [&] { return detail::make_adaptive_avg_pool2d(size); });
}

Value ModelBuilder::flatten(const Value& x, const std::string& name) {
  return apply_made("flatten", name, {x}, detail::make_flatten);
}

Value ModelBuilder::dropout(const Value& x, double probability, const std::string& name) {
  return apply_made("dropout", name, {x}, [&] { return detail::make_dropout(probability); });
}

Value ModelBuilder::add(const Value& a, const Value& b, const std::string& name) {
  return apply_made("add", name, {a, b}, detail::make_add);
}

Value ModelBuilder::concat(const std::vector<Value>& parts, const std::string& name) {
  return apply_made("concat", name, parts,
                    [&] { return detail::make_concat(static_cast<int64_t>(parts.size())); });
}

std::vector<Value> ModelBuilder::split(const Value& x, int64_t parts, const std::string& name) {
  return place(make("split", name, [&] { return detail::make_split(parts); }), {x}, name);
}

Value ModelBuilder::with_auxiliary(const Value& answer,
                                   const std::vector<std::pair<Value, double>>& others,
                                   const std::string& name) {
  std::vector<Value> parts = {answer};
  auxiliary_weights_.clear();
  for (const auto& [value, weight] : others) {
    parts.push_back(value);
    auxiliary_weights_.push_back(weight);
  }
  auxiliary_ = apply_made("stack_logits", name, parts,
                          [&] { return detail::make_stack_logits(std::ssize(parts)); });
  return *auxiliary_;
}

std::vector<Value> ModelBuilder::apply(std::shared_ptr<const Layer> layer,
                                       const std::vector<Value>& inputs, const std::string& name) {
  if (dynamic_cast<const detail::BuiltinLayer*>(layer.get()) == nullptr) has_own_layer_ = true;
  return place(std::move(layer), inputs, name);
}

std::vector<Value> ModelBuilder::place(std::shared_ptr<const Layer> layer,
                                       const std::vector<Value>& inputs, const std::string& name) {
  if (layer == nullptr)
    throw ConfigError(fmt::format("model '{}': layer '{}' is a null pointer", name_, name));
  const std::string layer_name = name.empty() ? unused_name(layer->kind()) : name;
  const LayerId id{static_cast<int32_t>(nodes_.size())};
  if (!names_.emplace(layer_name, id).second) {
    throw ConfigError(fmt::format("model '{}': two layers are called '{}'", name_, layer_name));
  }
  graph::LayerNode node{
      .name = layer_name, .kind = layer->kind(), .inputs = {}, .num_outputs = layer->num_outputs()};
  std::vector<Shape> input_shapes;
  for (const Value& value : inputs) {
    check_owner(value, fmt::format("layer '{}'", layer_name));
    node.inputs.push_back(value.ref);
    input_shapes.push_back(value.shape);
  }
  detail::checked_parameter_count(*layer, layer_name);
  std::vector<Shape> shapes = detail::infer_shapes(*layer, layer_name, input_shapes);

  std::vector<Value> outputs;
  for (size_t i = 0; i < shapes.size(); ++i)
    outputs.push_back({{id, static_cast<int>(i)}, std::move(shapes[i]), id_});
  nodes_.push_back(std::move(node));
  layers_.push_back(std::move(layer));
  return outputs;
}

graph::ParameterRef ModelBuilder::find_parameter(const std::string& layer,
                                                 const std::string& parameter) const {
  const auto found = names_.find(layer);
  // The name of a refused layer stays in the set.
  const bool exists = found != names_.end() && found->second.index() < nodes_.size() &&
                      nodes_[found->second.index()].name == layer;
  if (!exists)
    throw ConfigError(
        fmt::format("model '{}': there is no layer '{}' to tie a weight to", name_, layer));
  const std::vector<ParameterSpec> specs = layers_[found->second.index()]->parameters();
  for (size_t k = 0; k < specs.size(); ++k) {
    if (specs[k].name == parameter) return {found->second, static_cast<int>(k)};
  }
  throw ConfigError(
      fmt::format("model '{}': layer '{}' has no parameter '{}'", name_, layer, parameter));
}

void ModelBuilder::tie(const std::string& layer, const std::string& parameter,
                       const std::string& owner, const std::string& owner_parameter) {
  const graph::ParameterRef borrowed = find_parameter(layer, parameter);
  graph::ParameterRef lent = find_parameter(owner, owner_parameter);
  for (const graph::WeightTie& tie : nodes_[lent.layer.index()].ties) {
    if (tie.parameter == lent.parameter) lent = tie.owner;
  }
  if (lent.layer >= borrowed.layer) {
    throw ConfigError(
        fmt::format("model '{}': '{}' of layer '{}' can only be tied to a weight of an earlier "
                    "layer, found '{}' of '{}'",
                    name_, parameter, layer, owner_parameter, owner));
  }
  const Shape ours =
      layers_[borrowed.layer.index()]->parameters()[static_cast<size_t>(borrowed.parameter)].shape;
  const Shape theirs =
      layers_[lent.layer.index()]->parameters()[static_cast<size_t>(lent.parameter)].shape;
  if (ours != theirs) {
    throw ConfigError(
        fmt::format("model '{}': '{}' of layer '{}' has shape {}, '{}' of layer '{}' has shape {}: "
                    "they cannot be one weight",
                    name_, parameter, layer, detail::shape_text(ours), owner_parameter, owner,
                    detail::shape_text(theirs)));
  }
  std::vector<graph::WeightTie>& ties = nodes_[borrowed.layer.index()].ties;
  const bool is_tied = std::any_of(ties.begin(), ties.end(), [&](const graph::WeightTie& tie) {
    return tie.parameter == borrowed.parameter;
  });
  if (is_tied || lent_.contains(borrowed)) {
    throw ConfigError(
        fmt::format("model '{}': '{}' of layer '{}' is already tied", name_, parameter, layer));
  }
  lent_.insert(lent);
  ties.push_back({borrowed.parameter, lent});
  std::sort(ties.begin(), ties.end());
}

Model ModelBuilder::build(const std::vector<Value>& outputs) {
  if (outputs.empty()) throw ConfigError(fmt::format("model '{}': no outputs", name_));
  if (auxiliary_ && (outputs.size() != 1 || outputs[0].ref != auxiliary_->ref)) {
    throw ConfigError(fmt::format(
        "model '{}': an answer with auxiliary ones must be the model's only output", name_));
  }
  std::vector<graph::ValueRef> refs;
  for (const Value& value : outputs) {
    check_owner(value, "the model's outputs");
    refs.push_back(value.ref);
  }
  // The layers were added in topological order, which build() keeps, so code and nodes keep the
  // same order.
  Model model(
      name_,
      graph::ModelGraph::build(static_cast<int>(input_shapes_.size()), nodes_, std::move(refs)),
      layers_, input_shapes_);
  if (!has_own_layer_) model.set_takes_channels_last();
  std::vector<InputSpec> inputs = model.inputs();
  for (const auto& [index, spec] : named_inputs_) inputs[index] = spec;
  model.set_inputs(std::move(inputs));
  model.set_auxiliary_weights(auxiliary_weights_);
  return model;
}

Value ModelBuilder::apply_made(const char* kind, const std::string& name,
                               const std::vector<Value>& inputs, const Maker& maker) {
  return std::move(place(make(kind, name, maker), inputs, name).front());
}

std::string ModelBuilder::unused_name(const std::string& kind) {
  std::string name;
  do {
    name = fmt::format("{}_{}", kind, ++count_of_kind_[kind]);
  } while (names_.contains(name));
  return name;
}

void ModelBuilder::check_owner(const Value& value, const std::string& user) const {
  if (value.builder != id_)
    throw ConfigError(fmt::format("model '{}': {} uses a value of another builder", name_, user));
}

}  // namespace penstock::model
