// What a plan costs under each method of adding gradients.
//
//   for (const SyncPrice& price : sync_prices(profile, cluster, plan, false)) ...
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/machine_sum.h"
#include "penstock/plan/plan.h"
#include "penstock/profile/profile.h"

namespace penstock::planner {

/// A split under one method. Times are of the stage that waits longest, per optimiser step.
struct SyncPrice {
  plan::GradientSync sync = plan::GradientSync::Ordered;
  double throughput_samples_per_s = 0;  ///< simulated
  int64_t sync_ns = 0;                  ///< the whole sum
  int64_t wait_ns = 0;                  ///< what computation does not hide of it (plan/sum_wait.h)
  int64_t processor_ns = 0;             ///< what it takes from the computing of a replica
  /// `hierarchical`: how the devices of a machine add, where the cluster describes its machines.
  std::optional<plan::MachineSum> inside = {};
};

/// Of the plan's split, in the order of plan::kGradientSyncs; empty where no stage has replicas on
/// several ranks, since all methods are one there. Without CPU machines in the cluster
/// `parameter-server` and `summation` are left out: they cost what `ordered` does; `hierarchical`
/// where no machine holds several workers; `asynchronous` always. The plan's own method is never
/// left out. Throws as reprice().
std::vector<SyncPrice> sync_prices(const profile::Profile& profile, const cluster::Cluster& cluster,
                                   const plan::Plan& plan, bool global_norm);

}  // namespace penstock::planner
