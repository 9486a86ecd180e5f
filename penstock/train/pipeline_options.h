// The pipeline that a training's options ask for.
#pragma once

#include "penstock/model/parameter_optimizers.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/train/planned_model.h"
#include "penstock/train/train_options.h"

namespace penstock::train {

/// Keeps pointers to `optimizers` and options.world. Throws ConfigError as their parsers do.
runtime::PipelineOptions pipeline_options(const PlannedModel& model, const TrainOptions& options,
                                          const model::ParameterOptimizers& optimizers);

}  // namespace penstock::train
