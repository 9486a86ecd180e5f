// What gradients and backward passes of a stage need on CPUs, where the runtime frees gradients
// layer by layer and replicas of one process share weights (docs/weights.md). Internal to the
// planner.
//
//   add_pass_memory(context, split, stage_of_layer, memories, plan);
#pragma once

#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/planner/pricing/context.h"
#include "penstock/planner/pricing/split.h"

namespace penstock::planner {

/// Whether the replicas of a stage in this place, with this policy, have their weights once: they
/// are threads of one process on CPUs, and the optimiser can step parts of weights.
bool shares_weights(const Context& context, plan::WeightPolicy policy, int level, int replicas);

/// Plan::Stage::waiting_bytes. Each of r replicas adds up a part of 1/r, for which each of the
/// others sends as much: half of all that, since nobody knows who is first.
inline int64_t waiting_bytes(int64_t weight_bytes, int replicas) {
  return (weight_bytes - weight_bytes / replicas) / 2;
}

/// What the backward pass of these layers, in topological order, needs with gradients of weights,
/// beyond what is saved for it and beyond `message_bytes`, as working_bytes(). `steps`: weights are
/// stepped within the last pass; layers give their gradients away one by one, or with neighbours
/// (schedule::kGradientBytesTogether). O(layers).
plan::PassMemory pass_memory(const Context& context, const std::vector<LayerId>& layers,
                             int64_t message_bytes, bool steps);

/// Of MemoryModel::buffer_bytes(), the input of a next micro-batch where none is left: under flush,
/// a stage that keeps all micro-batches of a step, or all but one, needs most when it has made all
/// forward passes.
int64_t absent_input_bytes(const Context& context, const Split& split, const plan::Plan& plan,
                           size_t stage, const StageMemory& memory);

/// Fills in Stage::passes and Stage::shares_weights of a plan whose stages are priced. `memories`:
/// by stage. Nothing where workers are no CPUs.
void add_pass_memory(const Context& context, const Split& split,
                     const std::vector<StageId>& stage_of_layer,
                     const std::vector<StageMemory>& memories, plan::Plan& plan);

}  // namespace penstock::planner
