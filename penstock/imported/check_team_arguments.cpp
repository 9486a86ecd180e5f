#include "penstock/imported/check_team_arguments.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "penstock/imported/known_operators.h"

namespace penstock::imported {
namespace {

using ArgumentsByName = std::map<std::string, exported::Argument>;

/// Without those that are none.
ArgumentsByName arguments_of(StepEdit step, const OriginOf& origin) {
  for (const std::string& name : step.reads()) step.rename(name, origin(name));
  const auto handle = find_operator(step.step().node.target);
  const auto& inputs = step.step().node.inputs;
  ArgumentsByName result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::holds_alternative<exported::NoneArgument>(inputs[i].value)) continue;
    std::string name = inputs[i].name;
    if (name.empty() && handle && i < handle->schema().arguments().size())
      name = handle->schema().arguments()[i].name();
    result[name] = inputs[i].value;
  }
  return result;
}

bool is_made_mm(const StepEdit& expected, bool is_partial) {
  return is_partial && expected.name() == "addmm";
}

bool is_one(const StepEdit& step, std::string_view factor) {
  return !step.has(factor) || step.fraction(factor) == 1;
}

bool calls(const StepEdit& step, std::string_view target,
           const std::vector<std::string_view>& arguments) {
  const auto& inputs = step.step().node.inputs;
  return step.step().node.target == target &&
         std::equal(inputs.begin(), inputs.end(), arguments.begin(), arguments.end(),
                    [](const exported::NamedArgument& one, std::string_view name) {
                      return one.name == name;
                    });
}

}  // namespace

bool has_same_operator(const StepEdit& expected, const StepEdit& edit, bool is_partial) {
  const std::string& target = edit.step().node.target;
  if (is_made_mm(expected, is_partial)) return target == "torch.ops.aten.mm.default";
  if (target == expected.step().node.target) return true;
  const bool takes_apart = expected.name() == "split" || expected.name() == "split_with_sizes" ||
                           expected.name() == "chunk";
  return takes_apart && target == "torch.ops.aten.split_with_sizes.default";
}

bool has_same_arguments(const StepEdit& expected, const StepEdit& edit, bool is_partial,
                        const OriginOf& origin) {
  ArgumentsByName own = arguments_of(edit, origin);
  ArgumentsByName whole = arguments_of(expected, [](const std::string& name) { return name; });
  if (is_made_mm(expected, is_partial)) {
    if (!is_one(expected, "alpha") || !is_one(expected, "beta")) return false;
    whole["self"] = whole["mat1"];
    for (const char* name : {"mat1", "alpha", "beta"}) whole.erase(name);
  } else if (is_partial) {
    whole.erase("bias");
  }
  for (const char* groups : {"groups", "num_groups"}) {
    own.erase(groups);
    whole.erase(groups);
  }
  return own == whole;
}

bool adds_bias(const StepEdit& expected, const StepEdit* reshaped, const StepEdit& add,
               size_t rank) {
  if (!calls(add, "torch.ops.aten.add.Tensor", {"self", "other"})) return false;
  // Along the channels, which are not last: [channels, 1, ...].
  const bool needs_shape = expected.name().starts_with("conv");
  if (needs_shape != (reshaped != nullptr)) return false;
  if (!needs_shape) return true;
  if (rank < 2) return false;
  std::vector<std::optional<int64_t>> shape(rank - 1, 1);
  shape.front() = -1;
  return calls(*reshaped, "torch.ops.aten.reshape.default", {"self", "shape"}) &&
         reshaped->numbers("shape") == shape;
}

bool is_copy(const StepEdit& step) { return calls(step, "torch.ops.aten.clone.default", {"self"}); }

}  // namespace penstock::imported
