// The method of adding gradients that makes the fastest plan. Internal to the planner.
//
//   const PlanResult best = plan_with_any_sync(cluster, options, {.search = search, .price =
//   price});
#pragma once

#include <functional>

#include "penstock/cluster/cluster.h"
#include "penstock/planner/plan_options.h"
#include "penstock/planner/plan_result.h"
#include "penstock/planner/time_limit.h"

namespace penstock::planner {

struct SyncSearch {
  /// The best plan with the method of `options.sync`.
  std::function<PlanResult(const PlanOptions& options, TimeLimit time)> search;
  /// The plan as it is, priced anew.
  std::function<plan::Plan(const plan::Plan& plan)> price;
};

/// Of equally fast plans the one that adds by `ordered`, and then the first method. Families that
/// another method makes faster than the plan's own stand among its alternatives with that one.
PlanResult plan_with_any_sync(const cluster::Cluster& cluster, PlanOptions options, TimeLimit time,
                              const SyncSearch& by);

}  // namespace penstock::planner
