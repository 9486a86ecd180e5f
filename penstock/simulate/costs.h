// What a plan costs where it is simulated, and what is wrong with costs that were made otherwise.
//
//   Costs costs = costs_of(plan);
//   costs.overlap = 0.5;
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/plan/plan.h"
#include "penstock/simulate/values.h"

namespace penstock::simulate {

/// The costs of the plan's stages and links, as schedule::member_shape_of() has them (a stage of
/// teams once for each member), with its places and its cluster, and with gradients summed in this
/// many groups (schedule/gradient_sets.h; nothing: one per replica of each stage).
/// Throws ConfigError for a link to a stage that does not exist; simulate() refuses stages that do
/// not fit on the cluster or share a worker.
Costs costs_of(const plan::Plan& plan, std::optional<int64_t> gradient_groups = {});
/// Where replicas share out the optimiser's state and each needs the sums of all gradients (for a
/// norm), gathering the weights comes on top of those sums: half as long again, as long as one of
/// the two halves of an all-reduce. Not for what costs_of() has counted: other methods than
/// `ordered` always give all sums.
void add_gathers(const plan::Plan& plan, Costs& costs);

namespace detail {

/// Throws ConfigError when the costs do not fit a schedule of `num_stages` stages or contain a
/// negative number.
void check_costs(const Costs& costs, int num_stages);

}  // namespace detail

}  // namespace penstock::simulate
