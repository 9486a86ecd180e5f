// What one step of a program reads, changes and gives on. Internal to imported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/imported/flat_program.h"
#include "penstock/imported/symbolic_size.h"

namespace penstock::imported {

/// What one step reads and does, by the names of the program.
struct StepFacts {
  std::vector<std::string> reads;    ///< tensors, each once
  std::vector<std::string> outputs;  ///< tensors; an unused one has an empty name
  std::vector<std::string> mutated;  ///< of `reads`: changed in place
  /// Of `reads`: the outputs share (or may share) their memory.
  std::vector<std::string> aliased;
  std::vector<SizeExpression> sizes;  ///< that arguments are made of; no numbers
  bool is_view = false;               ///< no arithmetic: the outputs are views of an input
  bool is_random = false;
};

/// Nothing, with a reason added, where this libtorch lacks the operator or an argument cannot be
/// handled.
std::optional<StepFacts> facts_of(const Step& step, const FlatProgram& program, Reasons& reasons);

}  // namespace penstock::imported
