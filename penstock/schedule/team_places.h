// Where each stage of a schedule stands in its team (teams.h), as a table for loops over actions or
// workers; place_in_team() is for one stage.
//
//   const TeamPlaces places(schedule.shape.teams);
//   const int member = places.of(action.stage).member;
#pragma once

#include <vector>

#include "penstock/schedule/teams.h"

namespace penstock::schedule {

class TeamPlaces {
 public:
  TeamPlaces() = default;
  /// ScheduleShape::teams. O(members).
  explicit TeamPlaces(const std::vector<int>& teams) {
    int32_t first = 0;
    for (size_t whole = 0; whole < teams.size(); ++whole) {
      const TeamPlace place{.whole = StageId{static_cast<int32_t>(whole)},
                            .first = StageId{first},
                            .size = teams[whole]};
      for (int m = 0; m < teams[whole]; ++m) places_.emplace_back(place).member = m;
      first += teams[whole];
    }
  }

  /// No stage has a team.
  bool empty() const { return places_.empty(); }
  /// `stage`: one of the shape's. O(1).
  TeamPlace of(StageId stage) const {
    return empty() ? TeamPlace{.whole = stage, .first = stage} : places_[stage.index()];
  }
  int size(StageId stage) const { return empty() ? 1 : places_[stage.index()].size; }

 private:
  std::vector<TeamPlace> places_;  ///< by stage; empty: each stage is whole
};

/// Whether the members of a team wait for each other in the action: F, R, B and I hold sums of the
/// team.
inline bool holds_team_sums(Op op) {
  return op == Op::Forward || op == Op::Recompute || makes_input_gradients(op);
}

}  // namespace penstock::schedule
