// The teams of a pipeline whose model has parts (model/parts.h), as its layers say. Internal to
// runtime.
#pragma once

#include <vector>

#include "penstock/model/model.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::runtime {

/// By stage; all of one member where the model is whole. Throws ConfigError where the stages of a
/// team do not follow each other, and where two members of a replica are one worker.
std::vector<schedule::TeamPlace> find_teams(const model::Model& model,
                                            const std::vector<StageId>& stage_of_layer,
                                            const schedule::WorkerTable& table, size_t stages);

/// The whole model's parameter of which parameter `number` of the layer is all or a part; itself
/// where the model is whole.
graph::ParameterRef whole_parameter(const model::Model& model, LayerId layer, size_t number);

/// Whether the layer has a part of the parameter only.
bool is_part(const model::Model& model, LayerId layer, size_t parameter);

}  // namespace penstock::runtime
