// From a strategy's name to a priced plan for this machine, measuring what is missing.
#pragma once

#include <cstdint>

#include "penstock/job/auto_plan_request.h"
#include "penstock/model/model.h"
#include "penstock/model/profiler_options.h"
#include "penstock/plan/plan.h"

namespace penstock::job {

/// The options with which `model` is measured for so many micro-batches per mini-batch.
model::ProfilerOptions profiler_options(const AutoPlanRequest& request, int64_t micro_batches);

/// Profiles `model` with the micro-batch size that the strategy will probably use, and plans. When
/// the plan needs another micro-batch size (replicated stages), the model is measured again with
/// it, or the given profile scaled to it, and everything is planned again. Throws NoAnswer when
/// there is no plan (says why).
plan::Plan auto_plan(const model::Model& model, const AutoPlanRequest& request);

}  // namespace penstock::job
