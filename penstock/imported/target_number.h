// The number of targets that count, which a program takes as an input of its own, as the models of
// Hugging Face do: a sum over the targets is divided by it. Internal to imported.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/imported/flat_program.h"
#include "penstock/imported/step_facts.h"

namespace penstock::imported {

/// The input's name.
inline constexpr std::string_view kTargetNumber = "num_items_in_batch";

struct TargetNumber {
  std::set<std::string> values;  ///< the number, and what is made of it alone
  std::string targets;           ///< that are counted; empty: nobody reads the number
  int64_t ignored = 0;           ///< targets of this value do not count
};

/// Takes the input's place: adds steps that count the targets of the program's summed
/// cross-entropy, at least 1, and moves those that read nothing but the number behind them. A
/// micro-batch counts its own. Weighed by that number (own_targets.h) its loss is the same part of
/// the whole mini-batch's as with the number of all targets. Adds to `reasons` why it cannot.
TargetNumber count_targets(FlatProgram& program, std::vector<StepFacts>& facts, Reasons& reasons);

}  // namespace penstock::imported
