#include "penstock/imported/own_targets.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "penstock/imported/cross_entropy_step.h"
#include "penstock/imported/known_operators.h"

namespace penstock::imported {

namespace {

using exported::Argument;
using exported::TensorArgument;
using Reduction = CrossEntropy::Reduction;

/// Terms and comparisons; a loss has a few of them.
constexpr int kMaxLooks = 1000;

/// The loss, taken apart from its end.
class LossTerms {
 public:
  LossTerms(const TrainableProgram& p, const Grouping& grouping) : p_(p), grouping_(grouping) {
    find_what_varies();
  }

  std::optional<OwnTargets> run() {
    if (add(p_.output, p_.facts.size())) return std::move(found_);
    return p_.target_number ? summed_targets() : std::nullopt;
  }

 private:
  /// What depends on inputs, on chance, or on what training averages.
  void find_what_varies() {
    varies_.insert(p_.origins.inputs.begin(), p_.origins.inputs.end());
    varies_.insert(p_.origins.buffers.begin(), p_.origins.buffers.end());
    for (const StepFacts& facts : p_.facts) {
      const bool varies =
          facts.is_random || std::any_of(facts.reads.begin(), facts.reads.end(),
                                         [&](const auto& name) { return this->varies(name); });
      if (!varies) continue;
      for (const auto* names : {&facts.outputs, &facts.mutated}) {
        for (const std::string& name : *names) varies_.insert(p_.aliases->root(name));
      }
    }
  }

  bool varies(const std::string& name) const {
    return varies_.contains(name) || varies_.contains(p_.aliases->root(name));
  }

  /// Adds what a value is made of by the steps before that one; false: it is no sum of means.
  bool add(const Argument& argument, size_t before) {
    const auto* tensor = std::get_if<TensorArgument>(&argument);
    return tensor == nullptr || add(tensor->name, before);
  }
  bool add(const std::string& name, size_t before) {
    if (!varies(name)) return true;  // the weights of the micro-batches add up to 1
    const auto made = maker_of(name, before);
    if (!made || ++looks_ > kMaxLooks) return false;
    const exported::Node& node = p_.program.steps[*made].node;
    if (const auto mean = cross_entropy_of(node, p_.program))
      return mean->reduction == Reduction::Mean && !mean->weighs_classes && add_mean(*mean, *made);
    if (node.inputs.empty()) return false;
    const Argument& first = node.inputs.front().value;
    if (is(node.target, "neg") || is_of_one_number(node)) return add(first, *made);
    return node.inputs.size() > 1 && add(node, first, node.inputs[1].value, *made);
  }
  bool add(const exported::Node& node, const Argument& first, const Argument& second,
           size_t before) {
    if (is_any(node.target, {"add", "add_", "sub", "sub_", "rsub"}))
      return add(first, before) && add(second, before);
    if (is_any(node.target, {"mul", "mul_"}) && is_constant(first) != is_constant(second))
      return add(is_constant(first) ? second : first, before);
    if (!is_any(node.target, {"div", "div_"}) || node.inputs.size() != 2) return false;
    return is_constant(second) ? add(first, before) : add_sum(first, second, before);
  }

  /// Not of weights: theirs is the gradient of a factor, and no number where no target counts.
  bool is_constant(const Argument& argument) const {
    const auto* tensor = std::get_if<TensorArgument>(&argument);
    return tensor == nullptr || p_.origins.constants.contains(tensor->name) ||
           (!varies(tensor->name) && maker_of_whole(tensor->name));
  }

  /// A sum or mean of a number.
  bool is_of_one_number(const exported::Node& node) const {
    const auto* tensor = std::get_if<TensorArgument>(&node.inputs.front().value);
    return is_any(node.target, {"mean", "sum"}) && tensor != nullptr &&
           p_.meta_of(tensor->name).sizes.empty();
  }

  /// Of a sum that is divided by the number of targets.
  bool add_sum(const Argument& sum, const Argument& number, size_t before) {
    const auto* dividend = std::get_if<TensorArgument>(&sum);
    const auto* divisor = std::get_if<TensorArgument>(&number);
    if (dividend == nullptr || divisor == nullptr || !p_.target_number ||
        !p_.target_number->values.contains(divisor->name))
      return false;
    const auto made = maker_of(dividend->name, before);
    if (!made) return false;
    const auto found = cross_entropy_of(p_.program.steps[*made].node, p_.program);
    return found && found->reduction == Reduction::Sum && add_mean(*found, *made);
  }

  bool add_mean(const CrossEntropy& term, size_t step) {
    if (!is_made_of_whole_numbers(term.targets)) return false;
    if (!found_) found_ = {.loss = step, .name = term.targets, .ignored = term.ignored, .least = 0};
    return found_->ignored == term.ignored && is_same(found_->name, term.targets);
  }

  std::optional<OwnTargets> summed_targets() const {
    for (const size_t s : grouping_.main) {
      const auto found = cross_entropy_of(p_.program.steps[s].node, p_.program);
      if (found && found->targets == p_.target_number->targets &&
          is_made_of_whole_numbers(found->targets))
        return OwnTargets{.loss = s, .name = found->targets, .ignored = found->ignored, .least = 1};
    }
    return std::nullopt;
  }

  static bool is_any(const std::string& target, std::initializer_list<std::string_view> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return is(target, name); });
  }

  /// The step before that one which gives the value its number, behind those that only hand it on.
  std::optional<size_t> maker_of(std::string name, size_t before) const {
    for (size_t k = grouping_.main.size(); k-- > 0;) {
      const size_t s = grouping_.main[k];
      if (s >= before) continue;
      const StepFacts& facts = p_.facts[s];
      const bool changes = p_.aliases->changes(facts, name);
      if (changes && !is_one_number(p_.aliases->root(name))) return std::nullopt;
      if (!changes && facts.outputs != std::vector{name}) continue;
      if (changes || (!facts.is_view && !is(p_.program.steps[s].node.target, "clone"))) return s;
      name = facts.reads.front();
    }
    return std::nullopt;
  }

  /// Whether all that may share its memory are single numbers, so that a change is one of all.
  bool is_one_number(const std::string& root) const {
    return std::all_of(p_.program.tensors.begin(), p_.program.tensors.end(), [&](const auto& one) {
      return p_.aliases->root(one.first) != root || one.second.sizes.empty();
    });
  }

  bool is_made_of_whole_numbers(const std::string& name) const {
    if (!is_whole(p_.meta_of(name).type)) return false;
    return p_.origins.whole.contains(name) || maker_of_whole(name).has_value();
  }

  /// Among the steps that read whole numbers alone.
  std::optional<size_t> maker_of_whole(const std::string& name) const {
    const auto found = std::find_if(
        grouping_.repeated_steps.begin(), grouping_.repeated_steps.end(), [&](size_t s) {
          const std::vector<std::string>& made = p_.facts[s].outputs;
          return std::find(made.begin(), made.end(), name) != made.end();
        });
    if (found == grouping_.repeated_steps.end()) return std::nullopt;
    return *found;
  }

  /// Whether they are the same numbers: the same operators make both of the same inputs.
  bool is_same(const std::string& one, const std::string& other) {
    const auto first = in_its_shape(one);
    const auto second = in_its_shape(other);
    if (looks_ > kMaxLooks) return false;
    if (first.first == second.first) return true;
    if (!first.second || !second.second) return false;
    const exported::Node& a = p_.program.steps[*first.second].node;
    const exported::Node& b = p_.program.steps[*second.second].node;
    const auto is_equal = [&](const exported::NamedArgument& x, const exported::NamedArgument& y) {
      const auto* left = std::get_if<TensorArgument>(&x.value);
      const auto* right = std::get_if<TensorArgument>(&y.value);
      if (left != nullptr && right != nullptr) return is_same(left->name, right->name);
      return x.name == y.name && x.value == y.value;
    };
    return a.target == b.target && a.outputs.size() == 1 && b.outputs.size() == 1 &&
           !p_.aliases->is_changed(one) && !p_.aliases->is_changed(other) &&
           std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(), is_equal);
  }

  /// The value behind those that are all of it in another shape, and the step that makes it.
  std::pair<std::string, std::optional<size_t>> in_its_shape(std::string name) {
    while (++looks_ <= kMaxLooks) {
      const auto made = maker_of_whole(name);
      const bool is_shape =
          made && !p_.aliases->is_changed(name) &&
          is_any(p_.program.steps[*made].node.target,
                 {"contiguous", "flatten", "reshape", "squeeze", "to", "unsqueeze", "view"});
      if (!is_shape) return {name, made};
      name = p_.facts[*made].reads.front();
    }
    return {};
  }

  const TrainableProgram& p_;
  const Grouping& grouping_;
  std::set<std::string> varies_;  ///< names, and roots of what is made
  std::optional<OwnTargets> found_;
  int looks_ = 0;
};

}  // namespace

std::optional<OwnTargets> own_targets(const TrainableProgram& p, const Grouping& grouping) {
  if (!p.returns_loss) return std::nullopt;
  return LossTerms(p, grouping).run();
}

}  // namespace penstock::imported
