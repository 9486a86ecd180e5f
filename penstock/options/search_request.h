// What a user asks of the search for a plan; profile and cluster are given apart.
//
//   SearchRequest request;
//   request.plan.strategy = plan::Strategy::OneFOneB;
#pragma once

#include <optional>
#include <string>

#include "penstock/model/optimizer_spec.h"
#include "penstock/options/request.h"
#include "penstock/planner/plan_options.h"

namespace penstock::options {

struct SearchRequest {
  planner::PlanOptions plan = {.sync = std::nullopt,
                               .offload = planner::Choice::Auto,
                               .shard_optimizer = planner::Choice::Auto};
  ModelRequest model = {};              ///< instead of a profile, for machines that are listed
  model::OptimizerSpec optimizer = {};  ///< whose state takes memory
  std::string time_limit = "10s";       ///< "0": none
  std::string memory_budget = "1GiB";   ///< of the search; "0": none
};

}  // namespace penstock::options
