#include "penstock/runtime/stage_teams.h"

#include <fmt/format.h>

#include <set>

#include "penstock/util/error.h"

namespace penstock::runtime {

using schedule::TeamPlace;

namespace {

/// Size and member; those of all layers of the stage are the same.
TeamPlace own_place(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                    StageId stage) {
  TeamPlace place;
  bool is_first = true;
  for (size_t l = 0; l < stage_of_layer.size(); ++l) {
    if (stage_of_layer[l] != stage) continue;
    const model::LayerPart* const part = model.part(LayerId{static_cast<int32_t>(l)});
    TeamPlace found;
    if (part != nullptr) {
      found.member = part->member;
      found.size = part->team;
    }
    if (!is_first && found != place) {
      throw ConfigError(fmt::format(
          "stage {} has layers of member {} of {} and of member {} of {}: expected those of one",
          stage.value, place.member, place.size, found.member, found.size));
    }
    place = found;
    is_first = false;
  }
  return place;
}

void check_workers(const schedule::WorkerTable& table, const TeamPlace& place) {
  for (int r = 0; r < table.replicas(place.first); ++r) {
    std::set<WorkerId> workers;
    for (int m = 0; m < place.size; ++m) {
      const StageId stage{place.first.value + m};
      if (table.replicas(stage) != table.replicas(place.first)) {
        throw ConfigError(fmt::format(
            "stages {} and {} are members of one team and have {} and {} replicas: expected as "
            "many",
            place.first.value, stage.value, table.replicas(place.first), table.replicas(stage)));
      }
      const WorkerId worker = table.worker_of_replica(stage, r);
      if (workers.insert(worker).second) continue;
      throw ConfigError(
          fmt::format("worker {} has two members of the team of stage {}: expected a worker for "
                      "each, which wait for each other",
                      worker.value, place.first.value));
    }
  }
}

}  // namespace

std::vector<TeamPlace> find_teams(const model::Model& model,
                                  const std::vector<StageId>& stage_of_layer,
                                  const schedule::WorkerTable& table, size_t stages) {
  std::vector<TeamPlace> teams;
  StageId whole{-1};
  for (int32_t s = 0; s < static_cast<int32_t>(stages); ++s) {
    TeamPlace place = own_place(model, stage_of_layer, StageId{s});
    if (place.member == 0) ++whole.value;
    const bool follows =
        place.member == 0 || (s > 0 && teams.back().size == place.size &&
                              teams.back().member + 1 == place.member && place.member < place.size);
    const bool is_complete =
        s == 0 || place.member > 0 || teams.back().member + 1 == teams.back().size;
    if (!follows || !is_complete) {
      throw ConfigError(fmt::format(
          "stage {} has member {} of {}: expected the stages of a team to follow each other, from "
          "member 0 on",
          s, place.member, place.size));
    }
    place.whole = whole;
    place.first = StageId{s - place.member};
    teams.push_back(place);
  }
  if (!teams.empty() && teams.back().member + 1 != teams.back().size) {
    throw ConfigError(fmt::format("the team of the last stage has {} members, and {} stages",
                                  teams.back().size, teams.back().member + 1));
  }
  for (const TeamPlace& place : teams) {
    if (place.member == 0 && place.size > 1) check_workers(table, place);
  }
  return teams;
}

graph::ParameterRef whole_parameter(const model::Model& model, LayerId layer, size_t number) {
  const model::LayerPart* const part = model.part(layer);
  if (part == nullptr) return {layer, static_cast<int>(number)};
  return {part->whole.value(), static_cast<int>(part->parameters.at(number).number)};
}

bool is_part(const model::Model& model, LayerId layer, size_t parameter) {
  const model::LayerPart* const part = model.part(layer);
  return part != nullptr && !part->parameters.at(parameter).is_whole();
}

}  // namespace penstock::runtime
