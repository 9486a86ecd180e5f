// Finds the targets of a program's own loss: inputs of whole numbers, such as labels, over which
// the loss is a mean. Internal to imported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "penstock/imported/step_groups.h"
#include "penstock/imported/trainable_program.h"

namespace penstock::imported {

struct OwnTargets {
  size_t loss = 0;      ///< the step that makes the loss
  std::string name;     ///< of the targets, made of inputs of whole numbers alone
  int64_t ignored = 0;  ///< targets of this value do not count
};

/// Nothing: the first output is no loss, or not a mean cross-entropy alone (classes without
/// weights).
std::optional<OwnTargets> own_targets(const TrainableProgram& program, const Grouping& grouping);

}  // namespace penstock::imported
