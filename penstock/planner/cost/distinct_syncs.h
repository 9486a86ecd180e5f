// Which methods of adding gradients differ on a cluster.
#pragma once

#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/plan/gradient_sync.h"

namespace penstock::planner {

/// The methods worth a comparison on this cluster: those whose gradients are of the same weights,
/// so not `asynchronous`.
std::vector<plan::GradientSync> distinct_syncs(const cluster::Cluster& cluster);

}  // namespace penstock::planner
