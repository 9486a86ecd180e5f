// Which methods of adding gradients differ on a cluster.
#pragma once

#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::planner {

/// The methods worth a comparison on this cluster: those whose gradients are of the same weights,
/// so not `asynchronous`.
std::vector<plan::GradientSync> distinct_syncs(const cluster::Cluster& cluster);

/// Those of them that one has to search with to find the fastest plan, in their order: without one
/// that costs at least what another does, whatever bytes however many replicas add, and wherever
/// they are. Of equal ones the first stays. `ordered` alone, where all workers are threads of one
/// process: there all methods are one. All, where servers or more than a few thousand workers make
/// it hard to say.
std::vector<plan::GradientSync> syncs_to_search(const cluster::Cluster& cluster,
                                                FloatType precision);

}  // namespace penstock::planner
