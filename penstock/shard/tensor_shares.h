// What of each layer of a model a team can share out, for the planner, which knows no layers.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/profile/profile.h"
#include "penstock/shard/infer.h"

namespace penstock::shard {

/// By layer, as in a team that spreads the whole model; `batch`: samples of a micro-batch,
/// `number_bytes`: of a number that crosses members. A value that several layers share out is
/// counted in the first of them.
std::vector<profile::TensorShare> tensor_shares(const model::Model& model, int64_t batch,
                                                int64_t number_bytes,
                                                const ShardOptions& options = {});

/// The same, into the costs of the model's profile.
void add_tensor_shares(profile::Profile& profile, const model::Model& model);

}  // namespace penstock::shard
