// Layers of a model for teams as those of the whole model, out and in (model/parts.h). Internal to
// runtime.
#pragma once

#include <vector>

#include "penstock/runtime/pipeline_options.h"
#include "penstock/runtime/stages.h"

namespace penstock::runtime {

/// `parts`: of the model's own layers, each on the rank of its stage's first replica. Those of the
/// whole model: each on the rank of the first replica's member 0, to which the others bring their
/// parts, layer by layer. Collective.
std::vector<LayerSnapshot> join_parts(const Stages& stages, std::vector<LayerSnapshot> parts);

/// A layer of the model's own, out of those of the whole model.
LayerSnapshot part_of(const Stages& stages, LayerId layer, const std::vector<LayerSnapshot>& whole);

/// Whether this rank has some part of a layer of the whole model.
bool holds_part(const Stages& stages, LayerId whole);

}  // namespace penstock::runtime
