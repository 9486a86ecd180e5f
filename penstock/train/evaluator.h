// What a trained model is worth on the test set: its loss, what it gets right, what it writes.
// Internal to train.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "penstock/model/model.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/ranks.h"
#include "penstock/schedule/schedule.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/data/prefetch.h"
#include "penstock/train/train_options.h"
#include "penstock/train/train_result.h"

namespace penstock::train {

/// For a schedule, which is checked: credits, when to stop, whom to tell.
runtime::RunOptions run_options_for(const schedule::Schedule& schedule,
                                    const TrainOptions& options);

/// The batches, made ahead by threads of their own; null where nothing is gained: inputs are quick
/// to make, and no worker of this rank has a GPU, which would wait for them.
std::unique_ptr<PrefetchedBatches> made_ahead(const Dataset& data, const EpochBatches& batches,
                                              const schedule::Schedule& schedule,
                                              const runtime::Pipeline& pipeline,
                                              const TrainOptions& options);
const runtime::BatchSource& source_of(const std::unique_ptr<PrefetchedBatches>& ahead,
                                      const EpochBatches& batches);

/// Keeps references.
class Evaluator {
 public:
  Evaluator(const model::Model& model, const DataSplit& data, const TrainOptions& options,
            runtime::Pipeline& pipeline);

  bool counts_correct() const { return counts_correct_; }
  /// On the test set, after the pipeline's steps, with the means of the weights where there are
  /// some. Blocks for one pass, and for as many as the longest sentence has tokens where the metric
  /// is of what the model writes. Nothing: the run was stopped. Throws InternalError without test
  /// samples. Collective.
  std::optional<Evaluation> evaluate(uint64_t seed);

 private:
  runtime::Ranks ranks() const { return {.world = options_.world, .deadline = options_.deadline}; }
  bool counts_top5() const;
  /// Of what the model writes, `batch` sentences at a time. Nothing: the run was stopped.
  std::optional<double> score_of_written(int64_t batch);

  const model::Model& model_;
  const DataSplit& data_;
  const TrainOptions& options_;
  runtime::Pipeline& pipeline_;
  bool counts_correct_;  ///< otherwise there is no accuracy
};

}  // namespace penstock::train
