// Whether a run can go on from a checkpoint, and save one. Internal to train.
#pragma once

#include <cstdint>

#include "penstock/model/model.h"
#include "penstock/runtime/ranks.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/train_options.h"

namespace penstock::train {

/// The length of a learning rate's schedule in steps: what the options say, otherwise that of the
/// run that began (`saved`, 0: not known), otherwise the steps of this one; 0: it has no end, and
/// no compensation fades with it.
int64_t schedule_steps(const TrainOptions& options, int64_t saved, int64_t run_steps);

/// How many steps plan::Compensation::Rate fades over: a quarter of the schedule's. Source: Yang et
/// al., "PipeMare", MLSys 2021, section 4.1: a quarter of the epochs before the first drop.
int64_t fade_steps(int64_t schedule_steps);

/// A checkpoint inside an epoch needs the rest of that epoch: the same mini-batches, samples and
/// order. Throws ConfigError.
void check_inside_epoch(const CheckpointPosition& checkpoint, const TrainOptions& options,
                        int64_t train_samples);

/// Weights that have learned one numbering of the classes say nothing in another. Where either has
/// no names, nothing is compared. Throws ConfigError.
void check_same_classes(const CheckpointPosition& checkpoint,
                        const std::vector<std::string>& classes);

/// All ranks must go on from the same checkpoint. Collective. Throws RuntimeError.
void check_same_position(const CheckpointPosition& checkpoint, const runtime::Ranks& ranks);

/// The last step's gradients may have been infinite, which no loss has shown yet. Collective.
/// Throws RuntimeError.
void check_finite(const Checkpoint& checkpoint, const model::Model& model,
                  const runtime::Ranks& ranks);

}  // namespace penstock::train
