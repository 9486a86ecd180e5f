// What would change the plan: plans again with one thing about the cluster, the memory or the model
// different at a time.
//
//   PlanResult result = make_plan(profile, cluster, options);
//   // "twice the bandwidth of rack": +31 %
//   for (const plan::WhatIfResult& change : what_if(profile, cluster, options, *result.plan)) ...
#pragma once

#include <functional>
#include <vector>

#include "penstock/plan/what_if_result.h"
#include "penstock/planner/planner.h"

namespace penstock::planner {

/// Asked, where the cluster makes them possible:
///   * one worker more and one fewer in each innermost unit; with several levels also one
///     outermost unit (a server) more and one fewer; where the cluster describes its machines, as
///     many workers of each as keep the same number behind each PCIe switch
///   * twice the bandwidth of each level that joins anything (of the machines' level with all links
///     that the description of machines has); half the latency of all
///   * half and twice the memory per worker; where nothing limits it, half of what `plan` needs
///   * every worker twice as fast; the layers of the slowest stage twice as fast
///
/// Each answer is the best plan for `options` (without its `compare`) then, or the reason why there
/// is none. `plan` is what speedups are relative to, usually the one made for the same three
/// arguments. `progress(done, total)` is called after each answer. Throws ConfigError as make_plan
/// does for the arguments as they are; a change that cannot be planned for (too many workers) is an
/// infeasible answer. Costs as many calls of make_plan as there are answers, about ten.
std::vector<plan::WhatIfResult> what_if(
    const profile::Profile& profile, const cluster::Cluster& cluster, const PlanOptions& options,
    const plan::Plan& plan, const std::function<void(int done, int total)>& progress = {});

}  // namespace penstock::planner
