#include "penstock/imported/layer_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

namespace {

void check_in_range(const std::string& symbol, int64_t size,
                    const std::map<std::string, exported::SymbolRange>& ranges,
                    const std::string& name) {
  const auto found = ranges.find(symbol);
  if (found == ranges.end()) return;
  const exported::SymbolRange& range = found->second;
  // torch.export says 2 of every size without bounds: it takes 1 for a constant.
  const int64_t least = range.min.value_or(1) <= 2 ? 1 : *range.min;
  if (size >= least && size <= range.max.value_or(size)) return;
  throw ConfigError(fmt::format(
      "'{}' has a size of {}, the program was exported for {}{} (torch.export.Dim)",
      printable(name), size, least, range.max ? fmt::format(" to {}", *range.max) : " or more"));
}

}  // namespace

LayerShapes::LayerShapes(ShapeFacts inputs, ShapeFacts outputs, const Symbols& hints,
                         std::string batch_symbol,
                         std::map<std::string, exported::SymbolRange> ranges,
                         const FlatProgram& program)
    : hints_(hints),
      batch_symbol_(std::move(batch_symbol)),
      ranges_(std::move(ranges)),
      inputs_(values_of(std::move(inputs), program)),
      outputs_(values_of(std::move(outputs), program)) {}

std::vector<LayerShapes::Value> LayerShapes::values_of(ShapeFacts facts,
                                                       const FlatProgram& program) const {
  std::vector<Value> values;
  for (size_t i = 0; i < facts.names.size(); ++i) {
    Value value{.name = facts.names[i], .shape = std::move(facts.shapes.at(i)), .sizes = {}};
    const auto found = program.tensors.find(value.name);
    if (found != program.tensors.end()) value.sizes = found->second.sizes;
    value.by_sample = !value.sizes.empty() && !value.sizes.front().is_number() &&
                      SizeExpression(value.sizes.front()).multiple_of(batch_symbol_) == 1;
    values.push_back(std::move(value));
  }
  return values;
}

void LayerShapes::tell(const Value& input, const model::Shape& shape, Symbols& told) const {
  if (!input.by_sample) return;
  if (shape.size() + 1 != input.sizes.size()) {
    throw ConfigError(fmt::format("'{}' has {} sizes, found [{}]", printable(input.name),
                                  input.sizes.size() - 1, fmt::join(shape, ", ")));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const exported::SymbolicInt& size = input.sizes[d + 1];
    if (size.is_number()) {
      if (size.value == shape[d]) continue;
      throw ConfigError(
          fmt::format("dimension {} of '{}' is {} in the program, found {}: export it with that "
                      "dimension dynamic",
                      d + 1, printable(input.name), size.value, shape[d]));
    }
    const SizeExpression expression(size);
    if (expression.symbols().size() != 1) continue;
    const std::string& symbol = *expression.symbols().begin();
    const int64_t factor = expression.multiple_of(symbol);
    if (factor < 1) continue;
    if (shape[d] % factor != 0) {
      throw ConfigError(fmt::format("dimension {} of '{}' is {}, expected a multiple of {}", d + 1,
                                    printable(input.name), shape[d], factor));
    }
    const int64_t value = shape[d] / factor;
    check_in_range(symbol, value, ranges_, input.name);
    const auto [place, is_new] = told.emplace(symbol, value);
    if (!is_new && place->second != value) {
      throw ConfigError(fmt::format("dimension {} of '{}' is {}, expected {}, as of another input",
                                    d + 1, printable(input.name), shape[d],
                                    place->second * factor));
    }
  }
}

model::Shape LayerShapes::shape_of(const Value& output, const Symbols& told) const {
  if (output.shape.empty() || output.sizes.empty()) return output.shape;
  Symbols symbols = hints_;
  for (const auto& [symbol, value] : told) symbols[symbol] = value;
  model::Shape sizes;
  for (const exported::SymbolicInt& size : output.sizes) {
    const SizeExpression expression(size);
    for (const std::string& symbol : expression.symbols()) {
      if (symbol == batch_symbol_ || told.contains(symbol)) continue;
      throw ConfigError(fmt::format("the size {} of '{}' cannot be told from the layer's inputs",
                                    printable(symbol), printable(output.name)));
    }
    sizes.push_back(expression.evaluate(symbols));
  }
  if (output.by_sample) {
    sizes.erase(sizes.begin());
    return sizes;
  }
  const int64_t numbers =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  const auto batch = symbols.find(batch_symbol_);
  return {std::max<int64_t>(
      1, numbers / std::max<int64_t>(1, batch == symbols.end() ? 1 : batch->second))};
}

std::vector<model::Shape> LayerShapes::outputs(const std::vector<model::Shape>& inputs) const {
  bool is_example = inputs.size() == inputs_.size();
  for (size_t i = 0; is_example && i < inputs.size(); ++i)
    is_example = inputs[i] == inputs_[i].shape;
  std::vector<model::Shape> shapes;
  Symbols told;
  for (size_t i = 0; !is_example && i < std::min(inputs.size(), inputs_.size()); ++i)
    tell(inputs_[i], inputs[i], told);
  for (const Value& output : outputs_)
    shapes.push_back(is_example ? output.shape : shape_of(output, told));
  return shapes;
}

}  // namespace penstock::imported
