// Stages whose weights are spread over the members of a team (tensor parallelism): the schedule has
// such a stage once per member. Members do the same in the same order, each on its own worker.
//
//   const Schedule whole = generate(strategy, shape_of(plan));      // of the plan's stages
//   const Schedule all = with_teams(whole, {2, 1});    // stages 0 and 1: both members of stage 0
//   const TeamPlace place = place_in_team(all.shape, StageId{1});   // member 1 of the plan's stage
//   0
#pragma once

#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// Where a stage of a schedule stands.
struct TeamPlace {
  StageId whole;  ///< the plan's stage
  StageId first;  ///< member 0's stage in the schedule
  int member = 0;
  int size = 1;
  bool operator==(const TeamPlace&) const = default;
};
TeamPlace place_in_team(const ScheduleShape& shape, StageId stage);

/// `teams`: per stage, how many members each of its replicas has; all ones, or empty: returns what
/// it is given. The members of a replica stand on neighbouring workers. Throws ConfigError where
/// the numbers do not fit, where a worker holds stages whose teams differ, and above kMaxWorkers.
ScheduleShape with_teams(const ScheduleShape& whole, const std::vector<int>& teams);
/// Of a schedule before lower(), which then takes the links between the members.
Schedule with_teams(const Schedule& compute, const std::vector<int>& teams);
/// Back: each team one worker. O(replicas).
ScheduleShape without_teams(const ScheduleShape& shape);

/// What flows between two stages of teams. Member j of the later stage reads from member j mod t of
/// the earlier one, which has t; a member that none reads from by that rule sends to member i mod u
/// of the later one, which has u, so that a gradient comes back to each.
struct MemberLink {
  size_t whole = 0;  ///< of the links between whole stages
  StageLink link;
  bool operator==(const MemberLink&) const = default;
};
/// `teams` as in with_teams(); `links`: between whole stages. In their order, by member of the
/// later stage. Throws ConfigError for a link to a stage that does not exist, and above kMaxWorkers
/// members or links of them. O(members).
std::vector<MemberLink> member_links(const std::vector<StageLink>& links,
                                     const std::vector<int>& teams);
/// The links alone, as lower() takes them.
std::vector<StageLink> links_of_members(const std::vector<StageLink>& links,
                                        const std::vector<int>& teams);

}  // namespace penstock::schedule
