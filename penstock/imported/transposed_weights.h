// Weights that one product alone reads, through a transposition: x @ weight.T. Their rows are the
// columns of what is made. Internal to imported.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/imported/flat_program.h"

namespace penstock::imported {

struct TransposedWeight {
  std::string weight;
  std::string left;  ///< what the transposed weight is multiplied with, from the right
};

/// By the step that transposes.
std::map<size_t, TransposedWeight> transposed_weights(const FlatProgram& program,
                                                      const std::vector<std::string>& weights);

}  // namespace penstock::imported
