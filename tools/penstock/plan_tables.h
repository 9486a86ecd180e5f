// Parts of what `penstock plan` shows: as JSON, and as tables for people.
//
//   document["what_if"] = what_if_json(changes);
#pragma once

#include <string>
#include <vector>

#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/plan.h"
#include "penstock/plan/what_if_result.h"
#include "penstock/planner/plan_result.h"
#include "penstock/planner/pytorch_split.h"
#include "penstock/planner/sync_prices.h"
#include "penstock/util/files/json.h"

namespace penstock::tool {

/// The split of a plan for torch.distributed.pipelining; its schedule lies in a file of that name
/// beside it.
Json pytorch_json(const planner::PytorchSplit& split, const plan::Plan& plan,
                  const std::string& schedule_path);
/// The same as a table, with what the restriction to `cut_at` (empty: to blocks) costs.
std::string pytorch_text(const planner::PytorchSplit& split, const plan::Plan& plan,
                         const std::string& cut_at);

/// How long the search took, when it had the plan, and when those before it.
Json search_json(const planner::PlanResult& result);
/// The same of the plan alone, in a line.
std::string search_text(const planner::PlanResult& result);

Json what_if_json(const std::vector<plan::WhatIfResult>& changes);

/// The methods by which gradients may be added.
Json sync_json(const std::vector<planner::SyncPrice>& prices);
/// `chosen` has a mark.
std::string sync_table(const std::vector<planner::SyncPrice>& prices, plan::GradientSync chosen);

}  // namespace penstock::tool
