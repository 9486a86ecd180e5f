// Whether a checkpoint was written for this model.
#pragma once

#include <string>
#include <string_view>

#include "penstock/model/model.h"
#include "penstock/train/checkpoint/manifest.h"

namespace penstock::train {

/// A hash of the layers, their connections and shapes.
std::string graph_hash(const model::Model& model);

/// The model's frozen parameters. What their values are is known without reading them.
FrozenRecord frozen_record(const model::Model& model);

/// Throws CheckpointError naming the first layer that differs when the checkpoint was written for
/// another model, or beside other frozen parameters.
void check_same_model(const Manifest& manifest, const model::Model& model, std::string_view place);

}  // namespace penstock::train
