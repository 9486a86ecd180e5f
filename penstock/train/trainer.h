// Trains a model by a plan: epochs of mini-batches through the pipeline, evaluation between them,
// checkpoints, early stop.
//
//   TrainResult result = train(model, load_data({}), {.plan = plan, .mini_batch_size = 64,
//       .epochs = 1});
//   std::cout << result.test_accuracy << '\n';
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/train_observer.h"
#include "penstock/train/train_options.h"
#include "penstock/train/train_result.h"

namespace penstock::train {

/// Checks everything but the plan. Throws ConfigError naming what was found and expected.
void validate(const TrainOptions& options);
/// Optimiser steps of one epoch over so many training samples.
int64_t mini_batches_per_epoch(int64_t samples, const TrainOptions& options);
/// Whether every step waits for the norm of all gradients: to clip or record it, or to know in
/// float16 whether all are finite.
bool wants_norm(const TrainOptions& options);
/// What of check_trainable() depends on no plan: whether metric and carried states can be had.
void check_before_plan(const model::Model& model, const DataSplit& data,
                       const TrainOptions& options);
/// validate(), and whether data, model and the plan's numbers fit each other.
void check_trainable(const model::Model& model, const DataSplit& data, const TrainOptions& options);

/// Blocks until the run ends. Throws ConfigError (unusable options, a plan for another model),
/// CheckpointError, RuntimeError (a layer failed), TimeoutError, and NoAnswer when the loss became
/// infinite: the last checkpoint stays.
TrainResult train(const model::Model& model, const DataSplit& data, const TrainOptions& options);

}  // namespace penstock::train
