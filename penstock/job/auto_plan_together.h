// auto_plan.h for a job: rank 0 plans, for what all ranks and the links between them measure.
#pragma once

#include "penstock/job/auto_plan_request.h"
#include "penstock/job/job.h"
#include "penstock/model/model.h"
#include "penstock/plan/plan.h"

namespace penstock::job {

/// Collective; `request` is the same on all ranks; rank 0 tells its listener. Its cluster, measure
/// and local_workers are filled in here. All ranks return the same plan, or all throw as
/// auto_plan().
plan::Plan auto_plan_together(Job& job, const model::Model& model, AutoPlanRequest request);

}  // namespace penstock::job
