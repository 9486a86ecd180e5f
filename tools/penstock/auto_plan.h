// From a strategy's name to a priced plan for this machine, measuring what is missing.
#pragma once

#include <cstdint>

#include "penstock/model/model.h"
#include "penstock/plan/plan.h"
#include "tools/penstock/auto_plan_request.h"

namespace penstock::tool {

/// Profiles `model` with the micro-batch size that the strategy will use, and plans. When the
/// planner's choice needs another micro-batch size (replicated stages), the chosen split is
/// measured and priced again with it. Throws ConfigError when there is no plan (says why).
plan::Plan auto_plan(const model::Model& model, const AutoPlanRequest& request);

/// Brings a plan made for another micro-batch size to this mini-batch size: times and sizes are
/// scaled in proportion; the throughput per sample stays, the alternatives go.
plan::Plan scale_plan(plan::Plan plan, int64_t mini_batch_size);

}  // namespace penstock::tool
