#include "penstock/imported/cross_entropy_step.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <variant>
#include <vector>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/operator_arguments.h"

namespace penstock::imported {

namespace {

using exported::Argument;

bool is_cross_entropy(const std::string& target) {
  static constexpr std::array kNames = {"cross_entropy_loss", "nll_loss", "nll_loss_nd",
                                        "nll_loss2d"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return is(target, name); });
}

/// Nothing where the argument is no constant.
std::optional<int64_t> number_in(const Argument* argument, const FlatProgram& program,
                                 int64_t usual) {
  if (argument == nullptr) return usual;
  if (const auto* number = std::get_if<int64_t>(argument)) return *number;
  const std::vector<SizeExpression> sizes = sizes_in(*argument, program);
  if (sizes.size() != 1 || !sizes.front().is_number()) return std::nullopt;
  return sizes.front().evaluate({});
}

}  // namespace

std::optional<CrossEntropy> cross_entropy_of(const exported::Node& node,
                                             const FlatProgram& program) {
  if (!is_cross_entropy(node.target)) return std::nullopt;
  const auto handle = find_operator(node.target);
  if (!handle) return std::nullopt;
  // logits, targets, weights of classes, reduction, ignore_index
  const std::vector<const Argument*> arguments = matched(node, handle->schema());
  const auto* targets = std::get_if<exported::TensorArgument>(arguments[1]);
  const auto reduction =
      number_in(arguments[3], program, static_cast<int64_t>(CrossEntropy::Reduction::Mean));
  const auto ignored = number_in(arguments[4], program, CrossEntropy{}.ignored);
  if (targets == nullptr || !ignored || !reduction || *reduction < 0 || *reduction > 2)
    return std::nullopt;
  return CrossEntropy{
      .targets = targets->name,
      .reduction = CrossEntropy::Reduction{*reduction},
      .ignored = *ignored,
      .weighs_classes = arguments[2] != nullptr &&
                        !std::holds_alternative<exported::NoneArgument>(*arguments[2])};
}

}  // namespace penstock::imported
