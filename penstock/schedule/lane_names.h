// What the workers of a timeline hold, in words: names of lanes in traces and pages.
//
//   lane_names(timeline, plan.teams())[5];  // "stage 1, replica 0, member 1"
#pragma once

#include <string>
#include <vector>

#include "penstock/schedule/timeline.h"

namespace penstock::schedule {

/// By worker: "stage 2", "stages 0 7", with `teams` (ScheduleShape::teams) also which replica of
/// the plan's stage and which member of its team. Empty for a worker without events.
std::vector<std::string> lane_names(const Timeline& timeline, const std::vector<int>& teams = {});

}  // namespace penstock::schedule
