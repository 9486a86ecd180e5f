// What an operator of an LSTM reads, for teams whose members have hidden units each (lstm_units.h).
// Internal to imported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/imported/step_edit.h"

namespace penstock::imported {

/// What an operator of an LSTM reads.
struct LstmArguments {
  explicit LstmArguments(const StepEdit& step);
  std::string input;
  std::vector<std::string> states;   ///< hidden ones and cells, [layers * directions, batch, units]
  std::vector<std::string> weights;  ///< by layer and direction: of input, of hidden states, biases
  int64_t layers = 1;
  int64_t directions = 1;
  bool has_biases = true;
  bool batch_first = false;
  bool is_packed = false;  ///< the samples' places are one behind the other

  bool has_projections() const;
  /// Rows of gates come from a weight [4 * units, ...]; of the first one.
  const std::string& first_weight() const { return weights.front(); }
};

}  // namespace penstock::imported
