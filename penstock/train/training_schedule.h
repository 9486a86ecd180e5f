// The schedules that a training run executes, from its plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/schedule/schedule.h"
#include "penstock/train/data/lengths.h"
#include "penstock/train/train_options.h"

namespace penstock::train {

/// The shape of `samples` consecutive samples, cut into mini-batches of `mini_batch_size`, each
/// into the plan's number of micro-batches. Throws ConfigError for an unknown strategy or policy.
schedule::ScheduleShape training_shape(const plan::Plan& plan, int64_t samples,
                                       int64_t mini_batch_size, bool global_norm = false);

/// The lowered schedule that train() runs for these samples; simulate the same one for a
/// prediction. Where stages have teams, `links` are between their members. `global_norm`: gradients
/// are clipped or their norm is recorded. Throws ConfigError when the plan's strategy cannot run
/// its shape.
schedule::Schedule training_schedule(const plan::Plan& plan,
                                     const std::vector<schedule::StageLink>& links, int64_t samples,
                                     int64_t mini_batch_size, bool global_norm = false);

/// The order in which an epoch visits its samples: that of the options' lengths, in runs of like
/// ones (kLengthRun) where the plan's pipeline does not flush.
TrainingOrder order_of_epoch(const TrainOptions& options, uint64_t seed, int64_t epoch);
/// Its lengths, as checkpoints keep them: "bucketed", "bucketed in runs".
std::string lengths_name(const TrainOptions& options);

/// Only forwards, on the same workers; `accumulate`: micro-batches of a mini-batch.
schedule::Schedule evaluation_schedule(const plan::Plan& plan,
                                       const std::vector<schedule::StageLink>& links,
                                       int64_t micro_batches, int64_t accumulate = 1);

/// Throws ConfigError naming the rule if the verifier finds a violation. Returns the capacity that
/// the channels need.
int64_t check_schedule(const schedule::Schedule& schedule);

}  // namespace penstock::train
