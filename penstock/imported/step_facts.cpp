#include "penstock/imported/step_facts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/operator_arguments.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

using exported::Argument;

namespace {

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool returns_alias(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) {
                       const auto* alias = result.alias_info();
                       return alias != nullptr;
                     });
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

/// Facts that need no schema, of an operator that only we have here.
StepFacts facts_without_schema(const exported::Node& node, const FlatProgram& program) {
  StepFacts facts;
  for (const auto& input : node.inputs) {
    for (const std::string& name : tensor_names(input.value)) add_once(facts.reads, name);
    for (SizeExpression& size : sizes_in(input.value, program)) {
      if (!size.is_number()) facts.sizes.push_back(std::move(size));
    }
  }
  return facts;
}

void add_outputs(StepFacts& facts, const exported::Node& node) {
  for (const Argument& output : node.outputs) {
    const std::vector<std::string> names = tensor_names(output);
    if (names.empty() && !std::holds_alternative<exported::NoneArgument>(output))
      throw ConfigError("an output that is no tensor is not supported");
    facts.outputs.insert(facts.outputs.end(), names.begin(), names.end());
  }
}

/// Throws ConfigError saying why an operator cannot be run.
void refuse_unsupported(const exported::Node& node, bool is_here) {
  const std::string_view advice = node.target.find("grouped_mm") == std::string::npos
                                      ? ""
                                      : "; a mixture of experts can be exported in the form "
                                        "batched_mm (set_experts_implementation in transformers)";
  if (!is_here) {
    throw ConfigError(
        fmt::format("this libtorch has no operator {}{}", printable(node.target), advice));
  }
  if (node.target.starts_with("torch.ops.") && !node.target.starts_with("torch.ops.aten."))
    throw ConfigError(
        fmt::format("{} is none of ATen's operators{}", printable(node.target), advice));
  if (is_forbidden(node.target))
    throw ConfigError(fmt::format("{} is not allowed in a file", printable(node.target)));
  const bool sorts = std::any_of(node.inputs.begin(), node.inputs.end(), [](const auto& input) {
    return input.name == "sorter" && !std::holds_alternative<exported::NoneArgument>(input.value);
  });
  if (is(node.target, "searchsorted") && sorts)
    throw ConfigError("searchsorted with an order of its own (sorter) is not allowed in a file");
  if (is_unseeded(node)) {
    throw ConfigError(
        fmt::format("{} draws random numbers that cannot be repeated", printable(node.target)));
  }
  if (is_packed_recurrent(node.target) && is_positive(node, "dropout", 7)) {
    throw ConfigError(
        "dropout between the layers of a recurrent network is not supported for packed sequences");
  }
}

/// Whether it draws random numbers, beside those that take a generator.
bool draws(const exported::Node& node) {
  return is_dropout(node.target) || is(node.target, "dropout_") ||
         is(node.target, "feature_dropout_") || draws_uniform(node.target) ||
         draws_normal(node.target) || is_recurrent_with_dropout(node) ||
         (is(node.target, kAttention) && is_positive(node, "dropout_p", 4));
}

/// Adds what an argument says; `alias`: outputs may share its memory.
void add_argument(StepFacts& facts, const Argument& given, const c10::Argument& wanted, bool alias,
                  const FlatProgram& program) {
  const std::vector<SizeExpression> sizes = sizes_in(given, program);
  for (const SizeExpression& size : sizes) {
    if (!size.is_number()) facts.sizes.push_back(size);
  }
  const std::vector<std::string> names = tensor_names(given);
  for (const std::string& name : names) {
    add_once(facts.reads, name);
    if (writes(wanted)) add_once(facts.mutated, name);
    if (alias) add_once(facts.aliased, name);
  }
  if (names.empty() && sizes.empty())
    constant(given, *wanted.type());  // throws where it cannot be converted
}

void add_arguments(StepFacts& facts, const exported::Node& node, const FlatProgram& program,
                   const c10::FunctionSchema& schema) {
  const std::vector<const Argument*> arguments = matched(node, schema);
  const bool hands_through = may_hand_through(node.target);
  const bool alias = returns_alias(schema) || hands_through;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& wanted = schema.arguments()[i];
    if (inner_type(*wanted.type()).kind() == c10::TypeKind::GeneratorType) facts.is_random = true;
    if (arguments[i] != nullptr) {
      add_argument(facts, *arguments[i], wanted,
                   alias && (wanted.alias_info() != nullptr || hands_through), program);
    } else if (!wanted.default_value()) {
      throw ConfigError(fmt::format("the argument '{}' is missing", wanted.name()));
    }
  }
  if (!keeps_running_statistics(node.target)) return;
  for (const size_t i : {3, 4}) {
    if (arguments.size() > i && arguments[i] != nullptr) {
      for (const std::string& name : tensor_names(*arguments[i])) add_once(facts.mutated, name);
    }
  }
}

StepFacts checked_facts(const Step& step, const FlatProgram& program) {
  const exported::Node& node = step.node;
  const auto handle = find_operator(node.target);
  refuse_unsupported(node, handle || is(node.target, kAttention));
  StepFacts facts;
  if (handle) {
    add_arguments(facts, node, program, handle->schema());
    facts.is_view = is_view_only(node.target);
  } else {
    facts = facts_without_schema(node, program);
  }
  add_outputs(facts, node);
  facts.is_random = facts.is_random || draws(node);
  return facts;
}

}  // namespace

std::optional<StepFacts> facts_of(const Step& step, const FlatProgram& program, Reasons& reasons) {
  try {
    return checked_facts(step, program);
  } catch (const ConfigError& error) {
    reasons.push_back(fmt::format("{}: {}", place_of(step.node), error.what()));
    return std::nullopt;
  }
}

}  // namespace penstock::imported
