#include "penstock/schedule/lane_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "penstock/schedule/stages_in.h"
#include "penstock/schedule/team_places.h"

namespace penstock::schedule {
namespace {

std::string names_of(const std::vector<int32_t>& stages) {
  constexpr size_t kMost = 8;
  std::string name = stages.size() > 1 ? "stages" : "stage";
  for (size_t i = 0; i < std::min(stages.size(), kMost); ++i) name += fmt::format(" {}", stages[i]);
  return stages.size() > kMost ? name + " .." : name;
}

}  // namespace

std::vector<std::string> lane_names(const Timeline& timeline, const std::vector<int>& teams) {
  const TeamPlaces places(teams);
  std::map<int32_t, int> replicas;  // by stage of the schedule: seen so far
  std::vector<std::string> names;
  for (const auto& events : timeline.workers) {
    std::vector<int32_t> stages =
        stages_in(events, [](const TimelineEvent& event) -> const Action& { return event.action; });
    std::string& name = names.emplace_back();
    if (stages.empty()) continue;
    if (teams.empty()) {
      name = names_of(stages);
      continue;
    }
    const int replica = replicas[stages.front()]++;
    const int member = places.of(StageId{stages.front()}).member;
    for (int32_t& stage : stages) stage = places.of(StageId{stage}).whole.value;
    name = fmt::format("{}, replica {}, member {}", names_of(stages), replica, member);
  }
  return names;
}

}  // namespace penstock::schedule
