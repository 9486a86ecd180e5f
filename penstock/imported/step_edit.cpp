#include "penstock/imported/step_edit.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/operator_arguments.h"
#include "penstock/util/error.h"

namespace penstock::imported {

using exported::Argument;
using exported::NamedArgument;
using exported::TensorArgument;

StepEdit::StepEdit(Step step, const FlatProgram& program)
    : step_(std::move(step)), program_(&program), name_(step_.node.target) {
  constexpr std::string_view kAten = "torch.ops.aten.";
  if (!name_.starts_with(kAten)) return;
  name_ = name_.substr(kAten.size(), name_.rfind('.') - kAten.size());
  if (name_.size() > 1 && name_.ends_with('_') && !name_.ends_with("__")) {
    name_.pop_back();
    is_in_place_ = true;
  }
}

const NamedArgument* StepEdit::find(std::string_view name) const {
  std::optional<int> place;
  if (const auto handle = find_operator(step_.node.target)) {
    const auto found = handle->schema().argumentIndexWithName(std::string(name));
    if (found) place = *found;
  }
  for (size_t i = 0; i < step_.node.inputs.size(); ++i) {
    const NamedArgument& input = step_.node.inputs[i];
    const bool by_place = input.name.empty() && !input.keyword && place == static_cast<int>(i);
    if (input.name == name || by_place) return &input;
  }
  return nullptr;
}

NamedArgument* StepEdit::find(std::string_view name) {
  return const_cast<NamedArgument*>(std::as_const(*this).find(name));
}

Argument& StepEdit::at(std::string_view name) {
  if (NamedArgument* found = find(name)) return found->value;
  step_.node.inputs.push_back({.name = std::string(name), .value = {}, .keyword = true});
  return step_.node.inputs.back().value;
}

bool StepEdit::has(std::string_view name) const {
  const NamedArgument* found = find(name);
  return found != nullptr && !std::holds_alternative<exported::NoneArgument>(found->value);
}

std::optional<std::string> StepEdit::tensor(std::string_view name) const {
  const NamedArgument* found = find(name);
  const auto* value = found == nullptr ? nullptr : std::get_if<TensorArgument>(&found->value);
  return value == nullptr ? std::nullopt : std::optional(value->name);
}

std::vector<std::string> StepEdit::tensors(std::string_view name) const {
  const NamedArgument* found = find(name);
  const bool is_list =
      found != nullptr && std::holds_alternative<std::vector<TensorArgument>>(found->value);
  return is_list ? tensor_names(found->value) : std::vector<std::string>();
}

std::string StepEdit::need(std::string_view name) const {
  if (auto found = tensor(name)) return *std::move(found);
  throw ConfigError(fmt::format("{}: the argument '{}' is no tensor", place_of(step_.node), name));
}

namespace {

/// The schema's own value of an argument.
c10::IValue usual(const exported::Node& node, std::string_view name) {
  const auto handle = find_operator(node.target);
  if (!handle) return {};
  const auto place = handle->schema().argumentIndexWithName(std::string(name));
  if (!place) return {};
  const auto& value = handle->schema().arguments()[static_cast<size_t>(*place)].default_value();
  return value ? *value : c10::IValue();
}

}  // namespace

std::optional<int64_t> StepEdit::number(std::string_view name) const {
  const NamedArgument* found = find(name);
  if (found == nullptr) {
    const c10::IValue value = usual(step_.node, name);
    return value.isInt() ? std::optional(value.toInt()) : std::nullopt;
  }
  if (const auto* number = std::get_if<int64_t>(&found->value)) return *number;
  const std::vector<SizeExpression> sizes = sizes_in(found->value, *program_);
  if (sizes.size() != 1 || !sizes.front().is_number()) return std::nullopt;
  return sizes.front().evaluate({});
}

std::optional<double> StepEdit::fraction(std::string_view name) const {
  const NamedArgument* found = find(name);
  if (found == nullptr) {
    const c10::IValue value = usual(step_.node, name);
    return value.isDouble() ? std::optional(value.toDouble()) : std::nullopt;
  }
  if (const auto* value = std::get_if<double>(&found->value)) return *value;
  if (const auto* value = std::get_if<int64_t>(&found->value)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<bool> StepEdit::flag(std::string_view name) const {
  const NamedArgument* found = find(name);
  if (found == nullptr) {
    const c10::IValue value = usual(step_.node, name);
    return value.isBool() ? std::optional(value.toBool()) : std::nullopt;
  }
  const auto* value = std::get_if<bool>(&found->value);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::vector<std::optional<int64_t>> StepEdit::numbers(std::string_view name) const {
  const NamedArgument* found = find(name);
  std::vector<std::optional<int64_t>> result;
  if (found == nullptr) return result;
  if (const auto* values = std::get_if<std::vector<int64_t>>(&found->value)) {
    result.assign(values->begin(), values->end());
  } else if (const auto* value = std::get_if<int64_t>(&found->value)) {
    result.emplace_back(*value);
  } else {
    for (const SizeExpression& size : sizes_in(found->value, *program_))
      result.push_back(size.is_number() ? std::optional(size.evaluate({})) : std::nullopt);
  }
  return result;
}

std::vector<std::string> StepEdit::reads() const {
  std::vector<std::string> names;
  for (const NamedArgument& input : step_.node.inputs) {
    for (const std::string& name : tensor_names(input.value)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> StepEdit::outputs() const {
  std::vector<std::string> names;
  for (const Argument& output : step_.node.outputs) {
    for (const std::string& name : tensor_names(output)) names.push_back(name);
  }
  return names;
}

void StepEdit::set_tensor(std::string_view name, const std::string& value) {
  at(name) = TensorArgument{value};
}

void StepEdit::rename(const std::string& from, const std::string& to) {
  const auto change = [&](TensorArgument& one) {
    if (one.name == from) one.name = to;
  };
  for (NamedArgument& input : step_.node.inputs) {
    if (auto* one = std::get_if<TensorArgument>(&input.value)) change(*one);
    if (auto* many = std::get_if<std::vector<TensorArgument>>(&input.value)) {
      for (TensorArgument& one : *many) change(one);
    }
    if (auto* some = std::get_if<std::vector<std::optional<TensorArgument>>>(&input.value)) {
      for (auto& one : *some) {
        if (one) change(*one);
      }
    }
  }
}

void StepEdit::set_number(std::string_view name, int64_t value) { at(name) = value; }

void StepEdit::set_numbers(std::string_view name, const std::vector<int64_t>& values) {
  at(name) = values;
}

void StepEdit::set_entry(std::string_view name, size_t place, int64_t value) {
  Argument& argument = at(name);
  if (auto* numbers = std::get_if<std::vector<int64_t>>(&argument))
    numbers->at(place) = value;
  else if (auto* sizes = std::get_if<std::vector<exported::SymIntArgument>>(&argument))
    sizes->at(place) = {value};
}

void StepEdit::set_none(std::string_view name) { at(name) = exported::NoneArgument{}; }

}  // namespace penstock::imported
