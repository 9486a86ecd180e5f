// The pipeline that a training's options ask for.
#pragma once

#include "penstock/model/model.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/train/train_options.h"

namespace penstock::train {

/// Keeps pointers to `optimizers` and options.world. Throws ConfigError as their parsers do.
runtime::PipelineOptions pipeline_options(const model::Model& model, const TrainOptions& options,
                                          const model::ParameterOptimizers& optimizers);

}  // namespace penstock::train
