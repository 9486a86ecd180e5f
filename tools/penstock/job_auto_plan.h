// auto_plan.h for a job: rank 0 plans, for what all ranks and the links between them measure.
#pragma once

#include "penstock/model/model.h"
#include "penstock/plan/plan.h"
#include "tools/penstock/auto_plan_request.h"
#include "tools/penstock/job.h"

namespace penstock::tool {

/// Collective; `request` is the same on all ranks but for is_quiet. Its cluster, measure and
/// local_workers are filled in here. All ranks return the same plan, or all throw as auto_plan().
plan::Plan auto_plan_together(Job& job, const model::Model& model, AutoPlanRequest request);

}  // namespace penstock::tool
