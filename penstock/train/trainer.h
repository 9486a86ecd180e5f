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
#include "penstock/train/train_options.h"

namespace penstock::train {

/// How far a run is; passed to observers.
struct Progress {
  int64_t epoch = 0;  ///< from 0
  int64_t epochs = 0;
  int64_t mini_batch = 0;    ///< finished in this epoch
  int64_t mini_batches = 0;  ///< of this epoch when the run leaves it: fewer at max_steps
  int64_t samples = 0;       ///< finished since the segment began
  double loss = 0;           ///< mean of the last mini-batch
  double accuracy = 0;       ///< share of the epoch's targets so far that were right; NaN: none
  double samples_per_s = 0;  ///< since the segment began
};

struct EpochSummary {
  int64_t epoch = 0;
  double loss = 0;            ///< mean over the epoch's targets
  double train_accuracy = 0;  ///< while training; NaN where the loss has no right and wrong
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  /// Mean over the epoch's steps, before clipping; empty when norms are not computed.
  std::optional<double> grad_norm;
  double samples_per_s = 0;
  int64_t train_ns = 0;
};

/// Receives the progress of a run. on_mini_batch is called from worker threads, one call at a time,
/// and must be quick; the others from train()'s own thread.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_mini_batch(const Progress&) {}
  virtual void on_epoch(const EpochSummary&) {}
};

/// What one rank of a job says of its part.
struct RankSummary {
  int64_t peak_memory_bytes = 0;  ///< of the process, while training
  int64_t sent_bytes = 0;         ///< of tensors, to other ranks
  int64_t received_bytes = 0;
  int64_t clock_error_ns = 0;  ///< by how much its lanes in the timeline may be off
};

struct DevicePeak {
  std::string device;  ///< "cuda:0"
  std::string name;    ///< as its vendor calls it
  int64_t peak_memory_bytes = 0;
};

struct TrainResult {
  /// Mean of every mini-batch, over its real number of samples, in order.
  std::vector<double> losses;
  std::vector<double> learning_rates;  ///< as losses
  /// As losses, before clipping; empty without norms (see max_grad_norm; or stages share weights).
  std::vector<double> grad_norms;
  std::vector<EpochSummary> epochs;
  double final_loss = 0;         ///< mean over the last (at most) 50 mini-batches of this run
  int64_t final_loss_steps = 0;  ///< how many those were; the last one is number `steps`
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;  ///< empty: not evaluated, or no right and wrong
  double throughput_samples_per_s = 0;
  double idle_share = 0;
  int64_t peak_memory_bytes = 0;  ///< of the largest process, while training
  /// The GPUs of this rank's workers, by its allocator's counters while training.
  std::vector<DevicePeak> devices;
  int64_t steps = 0;  ///< optimiser steps, over all runs
  /// In float16: steps that were left out, over all runs, and the loss's scale at the end.
  int64_t skipped_steps = 0;
  double loss_scale = 1;
  bool interrupted = false;
  /// Samples of each segment that counts for throughput: one that was trained without draining the
  /// pipeline in between.
  std::vector<int64_t> segments;
  /// One per rank, on rank 0; empty without TrainOptions::world.
  std::vector<RankSummary> ranks;
  /// Measured; of the longest segment. On rank 0 all workers, by its clock; elsewhere the workers
  /// of other ranks have no events.
  schedule::Timeline timeline;
  schedule::Schedule schedule;         ///< that segment's schedule, as far as it was run
  std::vector<int64_t> peak_versions;  ///< per worker
  /// Per layer, at the end; empty unless TrainOptions::keep_weights, and for layers of other ranks
  /// but on rank 0.
  std::vector<model::Tensors> weights;
};

/// Checks everything but the plan. Throws ConfigError naming what was found and expected.
void validate(const TrainOptions& options);
/// Optimiser steps of one epoch over so many training samples.
int64_t mini_batches_per_epoch(int64_t samples, const TrainOptions& options);
/// Whether every step waits for the norm of all gradients: to clip or record it, or to know in
/// float16 whether all are finite.
bool wants_norm(const TrainOptions& options);
/// validate(), and whether data, model and the plan's numbers fit each other.
void check_trainable(const model::Model& model, const DataSplit& data, const TrainOptions& options);

/// Blocks until the run ends. Throws ConfigError (unusable options, a plan for another model),
/// CheckpointError, RuntimeError (a layer failed, the loss became infinite: the last checkpoint
/// stays), TimeoutError.
TrainResult train(const model::Model& model, const DataSplit& data, const TrainOptions& options);

}  // namespace penstock::train
