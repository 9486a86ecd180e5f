// What an optimiser step depends on beside its learning rate: its momentum, its share in the mean
// of the weights. The trainer, sessions and the serial replay take them from here.
//
//   step_momentum({.learning_rate = {.schedule = "OneCycleLR"}}, /*step=*/0, /*total_steps=*/100)
//       == 0.95;
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/train/train_options.h"

namespace penstock::runtime {
class Pipeline;
}

namespace penstock::train {

/// Of step `step` (from 0) of `total_steps`; nothing: the optimiser's own.
std::optional<double> step_momentum(const TrainOptions& options, int64_t step, int64_t total_steps);

/// The optimiser that the options ask for, with the mean of the weights.
model::OptimizerSpec optimizer_of(const TrainOptions& options);

/// As long as it lives, the pipeline computes with the means of its weights, where it keeps them
/// and has made a step; where replicas train by themselves, with those that their round would make
/// if it ended now (collective then). Not during a training run.
class WithMeans {
 public:
  WithMeans(runtime::Pipeline& pipeline, const TrainOptions& options);
  ~WithMeans();
  WithMeans(const WithMeans&) = delete;
  WithMeans& operator=(const WithMeans&) = delete;

 private:
  runtime::Pipeline& pipeline_;
  bool has_means_;
};

}  // namespace penstock::train
