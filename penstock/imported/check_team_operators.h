// Which types operators of a program may read and make, one formula for each sort of operator.
// Internal to imported.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "penstock/imported/step_edit.h"
#include "penstock/imported/team_sizes.h"
#include "penstock/shard/type.h"

namespace penstock::imported {

/// What is known of the values of a step.
class StepTypes {
 public:
  virtual ~StepTypes() = default;
  virtual const shard::Type& type(const std::string& name) const = 0;
  /// Of the whole value.
  virtual const ValueSizes& sizes(const std::string& name) const = 0;
  /// Whether members may read the value, which is no part, for a part of the work: its gradient is
  /// summed, or it has none.
  virtual bool is_shared(const std::string& name) const = 0;
  /// The same units and blocks.
  virtual bool same_part(const shard::Type& one, const shard::Type& other) const = 0;
  virtual bool joined(const shard::Type& one, const shard::Type& other) const = 0;
};

/// Whether a step with at least one part, or with a part of a weight, makes what its types say.
using Formula = std::function<bool(const StepEdit& step, const StepTypes& types)>;
/// By the operator's name.
const std::map<std::string, Formula, std::less<>>& formulas();

/// Operators whose results are numbers of their arguments in other places: they need no formula.
bool moves_numbers(std::string_view name);
/// Of those: the same arguments do the same whatever the lengths of dimensions are.
bool moves_any_lengths(std::string_view name);

}  // namespace penstock::imported
