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
  size_t loss = 0;      ///< a step that reads them
  std::string name;     ///< of the targets, made of inputs of whole numbers alone
  int64_t ignored = 0;  ///< targets of this value do not count
  /// The least that counts. 1: other sums are divided by that number, too, and count where no
  /// target does.
  int64_t least = 0;
};

/// Of a loss that is a sum of cross-entropies over the same targets, times numbers that no input
/// changes, and of terms that no input changes (a penalty on weights). Each cross-entropy is a mean
/// (classes without weights) or is divided by the number of targets (target_number.h). Nothing: the
/// first output is no loss, or another one. Where the program takes the number of targets, these
/// are its targets whatever the loss is, at least 1.
std::optional<OwnTargets> own_targets(const TrainableProgram& program, const Grouping& grouping);

}  // namespace penstock::imported
