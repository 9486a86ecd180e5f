#include "penstock/imported/team_layer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "penstock/imported/team_rules.h"
#include "penstock/imported/team_values.h"
#include "penstock/imported/transposed_weights.h"
#include "penstock/util/check.h"

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
  std::optional<Type> fixed_sequence(int64_t places) override {
    const auto [place, is_new] = sequences_.try_emplace(places);
    if (is_new) place->second = walk_.fixed_sequence(places);
    return place->second;
  }

  /// What this layer has said of regions is forgotten; those that it has asked for are still there.
  void start_again() {
    std::map<shard::Region, int64_t> lengths;
    size_t count = first_.size();
    for (const auto& [places, type] : sequences_) {
      if (!type) continue;
      lengths[type->region] = places;
      count = std::max(count, type->region + 1);
    }
    for (const auto& [parameter, type] : asked_) {
      if (type) count = std::max(count, type->region + 1);
    }
    regions() = first_;
    for (shard::Region next = first_.size(); next < count; ++next) {
      const auto found = lengths.find(next);
      if (found == lengths.end())
        regions().make();
      else
        regions().make_sequence(found->second, shard::Regions::Lengths::Fixed);
    }
  }
  std::vector<Type> sequences() const {
    std::vector<Type> all;
    for (const auto& [places, type] : sequences_) {
      if (type) all.push_back(*type);
    }
    return all;
  }

 private:
  shard::Walk& walk_;
  shard::Regions first_;
  std::map<size_t, std::optional<Type>> asked_;
  std::map<int64_t, std::optional<Type>> sequences_;
};

/// Before a weight is transposed for a product: whether it is there in parts is decided now.
void place_weight(TeamValues& values, const TransposedWeight& use, const StepEdit& edit) {
  const Type read = values.type(use.left);
  if (!read.is_part() || values.is_sequence(read))
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

void apply_rule_to(TeamValues& values, size_t s, const FlatProgram& program,
                   const std::map<size_t, TransposedWeight>& transposed) {
  const StepEdit edit(program.steps[s], program);
  values.begin(s);
  if (values.is_skipped(edit)) return;
  if (const auto use = transposed.find(s); use != transposed.end())
    place_weight(values, use->second, edit);
  apply_rule(values, edit);
}

}  // namespace

TeamLayer in_team(const LayerParts& parts, const FlatProgram& program,
                  const std::vector<Type>& inputs, shard::Walk& walk, const shard::Member* member) {
  AskedOnce asked(walk);
  const std::map<size_t, TransposedWeight> transposed =
      transposed_weights(program, parts.parameters);
  // Each attempt that fails leaves fewer choices to the next.
  TeamAttempt attempt;
  for (;; asked.start_again()) {
    size_t step = 0;
    TeamValues values(parts, program, inputs, asked, member, attempt);
    try {
      for (; step < program.steps.size(); ++step) apply_rule_to(values, step, program, transposed);
      shard::LayerTypes types = values.types();
      if (attempt.sequences) types.sequences = asked.sequences();
      return {values.take_program(), std::move(types), values.take_types()};
    } catch (const RowCuts& more) {
      attempt.cuts[more.parameter].insert(more.at.begin(), more.at.end());
    } catch (const ReadAsEqual& read) {
      attempt.equal.insert(read.step);
    } catch (const NoSequences&) {
      PENSTOCK_CHECK(attempt.sequences, parts.kind);
      attempt.sequences = false;
    } catch (const shard::Refused& refused) {
      if (values.reads_sequence(StepEdit(program.steps[step], program)))
        attempt.whole.insert(step);
      else if (attempt.sequences && values.regions().is_sequence(refused.region))
        attempt.sequences = false;
      else
        throw;
    }
  }
}

}  // namespace penstock::imported
