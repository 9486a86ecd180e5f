// How long a micro-batch takes to the last stage and back: no step with a flush is shorter.
// Internal to the planner.
//
// Problem: candidates are simulated one by one, and where messages are long most of them are far
// behind the best. The slowest stage alone says nothing of that. Chosen: the worker of the first
// stage ends its part of a step with the backward pass of a micro-batch whose forward pass is in
// the same step, and begins the next step after that.
#pragma once

#include <cstdint>

#include "penstock/cluster/topology.h"
#include "penstock/plan/plan.h"

namespace penstock::planner {

/// Forward and backward pass of one micro-batch through the stages that the first one reaches, and
/// its messages between the replicas that are nearest to each other. Weights' gradients count where
/// the kind does not split the backward pass, recomputation never. Nanoseconds; saturates.
/// O(links + replicas).
int64_t round_trip_ns(const cluster::Topology& topology, const plan::Plan& plan);

}  // namespace penstock::planner
