#include "penstock/imported/own_targets.h"

#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/operator_arguments.h"

namespace penstock::imported {

namespace {

using exported::Argument;

constexpr int64_t kMean = 1;  // at::Reduction::Mean

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

/// The step that makes a value, behind those that only hand it on; nothing: there is none.
std::optional<size_t> maker_of(std::string name, const TrainableProgram& p,
                               const Grouping& grouping) {
  for (size_t k = grouping.main.size(); k-- > 0;) {
    const size_t s = grouping.main[k];
    const StepFacts& facts = p.facts[s];
    if (facts.outputs != std::vector{name}) continue;
    if (p.aliases->is_changed(name)) return std::nullopt;  // and so another number
    const std::string& target = p.program.steps[s].node.target;
    if (!facts.is_view && !is(target, "clone")) return s;
    name = facts.reads.front();
  }
  return std::nullopt;
}

bool is_made_of_whole_numbers(const std::string& name, const TrainableProgram& p,
                              const Grouping& grouping) {
  if (!is_whole(p.meta_of(name).type)) return false;
  if (p.origins.whole.contains(name)) return true;
  return std::any_of(grouping.repeated_steps.begin(), grouping.repeated_steps.end(), [&](size_t s) {
    const std::vector<std::string>& made = p.facts[s].outputs;
    return std::find(made.begin(), made.end(), name) != made.end();
  });
}

}  // namespace

std::optional<OwnTargets> own_targets(const TrainableProgram& p, const Grouping& grouping) {
  if (!p.returns_loss) return std::nullopt;
  const auto loss = maker_of(p.output, p, grouping);
  if (!loss) return std::nullopt;
  const exported::Node& node = p.program.steps[*loss].node;
  const auto handle = find_operator(node.target);
  if (!handle || !is_cross_entropy(node.target)) return std::nullopt;
  // logits, targets, weights of classes, reduction, ignore_index
  const std::vector<const Argument*> arguments = matched(node, handle->schema());
  const bool is_weighted =
      arguments[2] != nullptr && !std::holds_alternative<exported::NoneArgument>(*arguments[2]);
  const auto ignored = number_in(arguments[4], p.program, /*usual=*/-100);
  const auto* targets = std::get_if<exported::TensorArgument>(arguments[1]);
  if (is_weighted || !ignored || targets == nullptr ||
      number_in(arguments[3], p.program, kMean) != kMean ||
      !is_made_of_whole_numbers(targets->name, p, grouping))
    return std::nullopt;
  return OwnTargets{.loss = *loss, .name = targets->name, .ignored = *ignored};
}

}  // namespace penstock::imported
