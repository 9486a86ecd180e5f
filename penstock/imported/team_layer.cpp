#include "penstock/imported/team_layer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "penstock/imported/team_rules.h"
#include "penstock/imported/team_values.h"
#include "penstock/imported/transposed_weights.h"

namespace penstock::imported {

using shard::Type;

namespace {

/// Asks another walk once for each parameter.
class AskedOnce final : public shard::Walk {
 public:
  explicit AskedOnce(shard::Walk& walk)
      : Walk(walk.regions()), walk_(walk), first_(walk.regions()) {}

  std::optional<Type> spread(size_t parameter) override {
    const auto [place, is_new] = asked_.try_emplace(parameter);
    if (is_new) place->second = walk_.spread(parameter);
    return place->second;
  }
  int team() const override { return walk_.team(); }

  /// What this layer has said of regions is forgotten; those that it has asked for are still there.
  void start_again() {
    regions() = first_;
    for (const auto& [parameter, type] : asked_) {
      while (type && regions().make() < type->region) {
      }
    }
  }

 private:
  shard::Walk& walk_;
  shard::Regions first_;
  std::map<size_t, std::optional<Type>> asked_;
};

/// Before a weight is transposed for a product: whether it is there in parts is decided now.
void place_weight(TeamValues& values, const TransposedWeight& use, const StepEdit& edit) {
  const Type read = values.type(use.left);
  if (!read.is_part())
    values.spread(use.weight, 0, edit);
  else if (read.dimension + 1 == values.sizes(use.left).rank())
    values.part(use.weight, Type::part(1, read.region, read.blocks), edit);
}

/// Whether the file gives the sizes of all values that the step reads and makes, and the step
/// names dimensions that they have. Rules rely on it.
bool is_described(const StepEdit& edit, TeamValues& values) {
  const auto knows = [&](const std::string& name) {
    return name.empty() || values.program().tensors.contains(name);
  };
  const std::vector<std::string> reads = edit.reads();
  const std::vector<std::string> outputs = edit.outputs();
  if (!std::all_of(reads.begin(), reads.end(), knows) ||
      !std::all_of(outputs.begin(), outputs.end(), knows))
    return false;
  if (reads.empty() || outputs.empty()) return true;
  const bool adds = edit.name() == "unsqueeze" || edit.name() == "stack";
  const auto rank =
      static_cast<int64_t>(values.sizes(adds ? outputs.front() : reads.front()).rank());
  for (const std::string_view argument :
       {"dim", "dims", "dim0", "dim1", "axis0", "axis1", "start_dim", "end_dim"}) {
    for (const std::optional<int64_t>& dimension : edit.numbers(argument)) {
      if (dimension && (*dimension < -rank || *dimension >= rank)) return false;
    }
  }
  return true;
}

void apply_rule(TeamValues& values, const StepEdit& edit) {
  const std::vector<std::string> reads = edit.reads();
  const auto part = std::find_if(reads.begin(), reads.end(),
                                 [&](const std::string& name) { return values.is_part(name); });
  if (!is_described(edit, values)) {
    if (part == reads.end()) return values.pass(edit);
    values.refuse(values.type(*part), edit, "has sizes that do not fit, or that are not given");
  }
  if (const auto product = product_rules().find(edit.name()); product != product_rules().end())
    return product->second(values, edit);
  if (part == reads.end()) return values.pass(edit);
  for (const TeamRules* rules : {&shape_rules(), &number_rules()}) {
    if (const auto rule = rules->find(edit.name()); rule != rules->end())
      return rule->second(values, edit);
  }
  values.refuse(values.type(*part), edit, "has no rule for parts");
}

}  // namespace

TeamLayer in_team(const LayerParts& parts, const FlatProgram& program,
                  const std::vector<Type>& inputs, shard::Walk& walk, const shard::Member* member) {
  AskedOnce asked(walk);
  const std::map<size_t, TransposedWeight> transposed =
      transposed_weights(program, parts.parameters);
  std::map<std::string, std::set<int64_t>> cuts;
  for (;;) {
    try {
      TeamValues values(parts, program, inputs, asked, member, cuts);
      for (size_t s = 0; s < program.steps.size(); ++s) {
        values.begin(s);
        if (const auto use = transposed.find(s); use != transposed.end())
          place_weight(values, use->second, StepEdit(program.steps[s], program));
        apply_rule(values, StepEdit(program.steps[s], program));
      }
      shard::LayerTypes types = values.types();
      return {values.take_program(), std::move(types), values.take_types()};
    } catch (const RowCuts& more) {  // cuts only become finer
      cuts[more.parameter].insert(more.at.begin(), more.at.end());
      asked.start_again();
    }
  }
}

}  // namespace penstock::imported
