// How operators of a program work on parts of their arguments: a rule for each. Internal to
// imported.
#pragma once

#include <map>
#include <string>

#include "penstock/imported/step_edit.h"
#include "penstock/imported/team_values.h"

namespace penstock::imported {

/// Sets the types of what the step makes, and emits what a member runs for it. Throws Refused,
/// InBlocks and RowCuts.
using TeamRule = void (*)(TeamValues& values, StepEdit edit);
/// By the operator's name, without the underscore of those in place.
using TeamRules = std::map<std::string, TeamRule, std::less<>>;

const TeamRules& product_rules();  ///< team_products.cpp: matrix products, convolutions, tables
const TeamRules& shape_rules();    ///< team_shapes.cpp: the same numbers in other places
const TeamRules& number_rules();   ///< team_numbers.cpp: number by number, norms, sums

/// team_lstm.cpp: hidden units of an LSTM.
void lstm_of_units(TeamValues& values, StepEdit edit);

/// A step that makes what `like` has the sizes of: the sum of the members' `partial`, and the bias,
/// whose dimension `bias_dimension` of the result it is, added once.
void sum_partial(TeamValues& values, StepEdit edit, const std::string& bias, size_t bias_dimension);

/// Where a tensor of other sizes, aligned from the right, has the dimension of a result.
struct Aligned {
  size_t from_right = 0;  ///< 1: the last dimension
  shard::Type type;       ///< of the result
};
/// Reads what is broadcast to a result of that rank: parts are joined, equal values that vary along
/// the part are taken in parts, others are pending. At least one is a part.
Aligned read_aligned(TeamValues& values, StepEdit& edit, const std::vector<std::string>& operands,
                     size_t rank);

}  // namespace penstock::imported
