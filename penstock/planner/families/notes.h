// Says in plain words why a plan is as it is, and why the others are not. Internal to the planner.
#pragma once

#include <string>
#include <vector>

#include "penstock/planner/families/families.h"

namespace penstock::planner {

/// What is true of any plan for this input: the slowest part, workers left idle, recomputation, a
/// gap that is not proven, batch size unknown.
std::vector<std::string> notes_on_plan(const Context& context, const plan::Plan& plan);

/// Fills in the note of every row that has none: why it is not the winner, or for the winner's own
/// row that it is.
void explain_rows(const Context& context, Families& families, const plan::Plan& winner,
                  std::vector<FamilyRow>& rows);

/// The same in sentences for the plan's own notes: how the others compare, what is faster but may
/// not be picked, what does not fit, and how steps differ in samples.
std::vector<std::string> notes_on_rows(const plan::Plan& winner,
                                       const std::vector<FamilyRow>& rows);

/// "1x16-4" for long runs of equal stages; their number when even that is long.
std::string short_config(const plan::Plan& plan);

/// "fc6 .. fc8".
std::string layer_range(const std::vector<std::string>& layers);

}  // namespace penstock::planner
