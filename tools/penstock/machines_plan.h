// `penstock plan --machines`: what a model would do on the machines that somebody has, before
// anything is loaded: whether it fits, how fast it would be, what would help, and what the same
// machines would do in other ways.
//
//   const PlannedFor there = on_machines("hosts.toml", request, "", 8);
//   PlanResult result = make_plan(there.profile, there.cluster, options);
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/options/search_request.h"
#include "penstock/plan/what_if_result.h"
#include "penstock/planner/machines/machines.h"
#include "penstock/planner/machines/other_ways.h"
#include "penstock/planner/plan_result.h"
#include "penstock/util/files/json.h"

namespace penstock::tool {

/// What is planned for.
struct PlannedFor {
  profile::Profile profile;
  cluster::Cluster cluster;
  /// That the cluster was made of: the profile is that of the first kind's device.
  std::optional<planner::Machines> machines = {};
};

/// Estimates the model of `request` on the device of each kind of machines (the training part
/// does), in micro-batches of `batch_size` samples. With `profile_file`, a profile of the first
/// kind's device, nothing is estimated, and the other kinds are as much faster as their data sheets
/// say. `memory_limit_bytes` takes the place of every device's memory. Throws ConfigError,
/// ParseError; RuntimeError where the training part fails.
PlannedFor on_machines(const std::string& machines_file, const options::SearchRequest& request,
                       const std::string& profile_file, int64_t batch_size,
                       std::optional<int64_t> memory_limit_bytes);

/// One more machine of each kind, and a faster network. `plan` may be missing: then up to eight
/// more machines are tried until the model fits.
std::vector<plan::WhatIfResult> what_would_help(
    const PlannedFor& there, const planner::PlanOptions& options, const planner::PlanResult& result,
    const std::function<void(int done, int total)>& progress);

/// What is said beside the plan, or in place of one.
struct MachinesAnswer {
  std::vector<planner::OtherWay> others;
  std::vector<plan::WhatIfResult> changes;
};
std::string machines_text(const PlannedFor& there, const planner::PlanResult& result,
                          const MachinesAnswer& answer);
Json machines_json(const PlannedFor& there, const planner::PlanResult& result,
                   const MachinesAnswer& answer);

}  // namespace penstock::tool
