// LSTMs of programs in a team: each member has the rows of its hidden units in all four gates
// (model/layers/lstm_sequence.h). Internal to imported.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "penstock/imported/team_step.h"
#include "penstock/model/team.h"

namespace penstock::imported {

/// One layer, in one or both directions. `call`: the arguments of aten::lstm.input for it, with the
/// member's weights; they become its results, whole but for the cells: those are of the member's
/// own units, and have no gradient. Blocks where members meet.
void run_lstm_of_units(const TeamStep& step, std::vector<c10::IValue>& call, model::Team& team);

/// A team for a member whose layer is tried alone.
std::unique_ptr<model::Team> lone_team(const TeamStep& step);

}  // namespace penstock::imported
