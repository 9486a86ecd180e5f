// What a member of a team does beside the operators of a program, where its layer works on parts:
// sums over the members, parts of whole values, and operators that need the others. Internal to
// imported.
//
//   const at::Tensor y = run_team_step({.kind = TeamStep::Kind::SumForward}, {x}, context.team);
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/parts.h"
#include "penstock/model/team.h"

namespace penstock::imported {

struct TeamStep {
  enum class Kind : uint8_t {
    SumForward,    ///< model::sum_forward()
    SumPart,       ///< the member's part of the sum, model::sum_part()
    SumBackward,   ///< model::sum_backward()
    OwnPart,       ///< the member's part of an equal value, model::part()
    Gather,        ///< model::gather()
    GatherSum,     ///< model::gather_sum()
    SumCopies,     ///< of a weight that several members have: model::sum_copies()
    OwnUnits,      ///< of a part that several members have, what the member alone works with
    Embedding,     ///< own_rows()
    CrossEntropy,  ///< cross_entropy_of_parts()
    Lstm,          ///< the program's operator, with a member's hidden units: lstm_units.h
    WholeMask      ///< the program's operator; its random mask is drawn for the whole value
  };
  Kind kind = Kind::SumForward;
  size_t dimension = 0;  ///< of the part
  int64_t whole = 0;     ///< the whole length
  /// That are the member's. SumCopies: the members that have the same. OwnUnits: of their part.
  std::vector<model::TensorPart::Run> runs = {};
  std::vector<int64_t> lengths = {};  ///< of all members' parts
  bool operator==(const TeamStep&) const = default;
};

/// "penstock.sum_forward": the target of a node that is no operator of the program.
std::string target_of(TeamStep::Kind kind);

/// Whether it gives the same value in another form, and no step of the program does it.
bool is_form(TeamStep::Kind kind);

/// The runs of a tensor that has the whole length.
at::Tensor own_runs(const at::Tensor& whole, const TeamStep& step);

/// Those of them whose part several members have.
inline bool is_of_copies(TeamStep::Kind kind) {
  return kind == TeamStep::Kind::SumCopies || kind == TeamStep::Kind::OwnUnits;
}

/// Whether a step of the program is called by the program's own name.
inline bool keeps_operator(TeamStep::Kind kind) {
  return kind == TeamStep::Kind::WholeMask || kind == TeamStep::Kind::Lstm;
}

/// What becomes of the node's arguments. Not where a step keeps_operator(). Blocks where members
/// exchange. Without a team, as for the profile of one member, nothing is exchanged.
at::Tensor run_team_step(const TeamStep& step, const std::vector<c10::IValue>& arguments,
                         model::Team* team);

}  // namespace penstock::imported
