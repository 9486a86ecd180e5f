// Cuts a flat program into the layers of a model: runs of steps between which values may cross from
// one worker to another. Internal to imported.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "penstock/imported/alias_sets.h"
#include "penstock/imported/step_facts.h"

namespace penstock::imported {

/// Which names come from outside of the steps.
struct Origins {
  std::set<std::string> inputs;      ///< the user's
  std::set<std::string> whole;       ///< of `inputs`: whole numbers and truth values
  std::set<std::string> parameters;  ///< trained
  std::set<std::string> buffers;     ///< changed in place by some step
  std::set<std::string> constants;   ///< tensors of the file that nothing changes
  std::set<std::string> frozen;      ///< of `constants`: parameters
};

/// One layer: consecutive steps of `main`, [begin, end).
struct StepGroup {
  size_t begin = 0;
  size_t end = 0;
};

struct Grouping {
  /// Steps (positions in the program) that depend on nothing but constants, sizes and inputs of
  /// whole numbers (masks, positions): every layer that needs their results runs them itself, so
  /// these need not cross. Not those that read a frozen weight and make values that may cross: one
  /// worker has the weight and does the work. In order.
  std::vector<size_t> repeated_steps;
  /// The other steps, without those whose results nobody reads. In order.
  std::vector<size_t> main;
  std::vector<StepGroup> groups;
  /// A value that would cross, but has the batch in another dimension than the first; empty: none.
  std::string batch_elsewhere;
};

/// A boundary is legal where nothing that crosses it is changed in place afterwards, every value
/// that crosses holds numbers of 16 or 32 bits, sample by sample, and a layer lies on both sides
/// that reads a value and makes one. All legal boundaries are taken, except before views.
Grouping group_steps(const FlatProgram& program, const std::vector<StepFacts>& facts,
                     const Origins& origins, const AliasSets& aliases,
                     const std::string& batch_symbol);

}  // namespace penstock::imported
