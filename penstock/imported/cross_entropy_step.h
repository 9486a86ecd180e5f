// The cross-entropies among a program's steps. Internal to imported.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/imported/flat_program.h"

namespace penstock::imported {

struct CrossEntropy {
  /// As at::Reduction has them.
  enum class Reduction : int64_t { None = 0, Mean = 1, Sum = 2 };

  std::string targets;  ///< the tensor of classes
  Reduction reduction = Reduction::Mean;
  int64_t ignored = -100;  ///< targets of this value do not count
  bool weighs_classes = false;
};

/// Nothing: the node is none, or one whose arguments are computed.
std::optional<CrossEntropy> cross_entropy_of(const exported::Node& node,
                                             const FlatProgram& program);

}  // namespace penstock::imported
