// Training that a program drives itself: it gives the batches, one after another, and may look at
// the weights in between. train() (trainer.h) is for whole runs over a data set.
//
// With TrainOptions::world every rank has a session and makes the same calls with the same data;
// what differs is refused on all of them.
//
//   Session session(model, {.plan = plan});
//   for (const Batch& batch : batches) loss = session.step(batch).loss;
//   model::Tensors weights = session.snapshot().front().weights;
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/model/sized_models.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/ranks.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/planned_model.h"
#include "penstock/train/plateau.h"
#include "penstock/train/train_options.h"
#include "penstock/train/weight_mean.h"

namespace penstock::train {

/// The samples of one optimiser step.
struct Batch {
  model::Tensors inputs;  ///< one per input of the model, [samples, ...]
  at::Tensor targets;     ///< as the loss takes them; undefined where it reads none
};

/// The mean over samples or targets, and how many of these were right.
struct StepResult {
  double loss = 0;
  int64_t samples = 0;
  int64_t targets = 0;
  int64_t correct = 0;
  double grad_norm = 0;                      ///< 0: not computed
  std::optional<double> learning_rate = {};  ///< of the step; nothing: none was made
};

/// Steps [first, first + steps) of an epoch.
struct EpochPart {
  int64_t first = 0;
  std::optional<int64_t> steps = {};  ///< nothing: all that follow
};

/// How far an epoch over a data set is.
struct InsideEpoch {
  int64_t steps = 0;  ///< of it, so far; 0: between epochs
  int64_t batch_size = 0;
  int64_t samples = 0;
  std::optional<bool> shuffle = {};
};

/// Where a training is: what its caller keeps of it, and checkpoints hold beside the session.
struct Place {
  int64_t epochs = 0;  ///< that are over
  InsideEpoch inside = {};
  double rate_scale = 1;  ///< SavedRate::scale and base
  std::optional<double> base_rate = {};
  std::vector<std::string> classes = {};  ///< the names of 0, 1, ...; empty: not known
  /// Where the loader of batches is, in the caller's own words (UTF-8); empty: not known.
  std::string loader = {};
};

/// One call at a time: another thread, or a callback, is refused with RuntimeError. After a failure
/// in a step, steps() counts those that were made. Where some stages have made one more, only
/// load() and resume() are possible: every other call throws RuntimeError.
class Session {
 public:
  /// Keeps a reference to the model. Of the options it takes plan, optimizer, learning_rate with
  /// learning_rate_steps, loss, seed, threads_per_worker, max_grad_norm, gradient_groups, deadline,
  /// stop and world. Throws ConfigError as train().
  Session(const model::Model& model, const TrainOptions& options);

  /// One optimiser step; blocks until it is done. Micro-batches are the plan's, or fewer where the
  /// batch has fewer samples. Under policies that delay weights a step drains the pipeline, so that
  /// nothing is delayed: train on several at once instead. `rate`: the learning rate, instead of
  /// that of the options; rank 0's counts. Throws ConfigError (a batch that does not fit, or has no
  /// target that counts), RuntimeError.
  StepResult step(const Batch& batch, std::optional<double> rate = {});
  /// The samples of `data` in `order`, cut into steps of `batch_size`: epoch number `epoch`,
  /// through which the pipeline stays full, as train() runs it. `on_step` is called after each
  /// step, on rank 0 only, from a worker's thread; false ends early, and what it throws ends early
  /// and is thrown on all ranks. `rates`: the learning rates of all steps, instead of those of the
  /// options; rank 0's count; empty: none. `part`: of these steps alone; they are those of the
  /// whole epoch, bit for bit, but for delays that begin anew. Returns the steps that were made.
  std::vector<StepResult> train(const Dataset& data, const std::vector<int64_t>& order,
                                int64_t epoch, int64_t batch_size,
                                const std::function<bool(const StepResult&)>& on_step = {},
                                const std::vector<double>& rates = {}, const EpochPart& part = {});
  /// Ends an epoch of single steps: from here on no rank is among them any more.
  void end_epoch();
  /// Loss and accuracy in evaluation mode, in micro-batches of at most `batch_size` samples.
  StepResult evaluate(const Dataset& data, int64_t batch_size);

  /// The model's outputs of these samples in evaluation mode, [samples, ...], as float32 or int64,
  /// on every rank. Throws ConfigError where the model's output is its loss.
  at::Tensor predict(const model::Tensors& inputs, int64_t batch_size);

  /// The caller's evaluation has this value: what a schedule and a mean of the weights wait for.
  /// `rises`: more is better. Steps after it have the rate that it has made. Throws ConfigError
  /// where neither waits.
  void observe(double value, bool rises);

  int64_t steps() const { return pipeline_.steps(); }
  /// Of all layers, in graph order, on every rank; refers to the session's own tensors where it
  /// can.
  std::vector<runtime::LayerSnapshot> snapshot() const;
  /// Goes on from this state. Throws ConfigError when it does not fit the model.
  void load(const std::vector<runtime::LayerSnapshot>& layers, int64_t steps);
  /// Saves a checkpoint, as train() does, and returns its folder. Running statistics of replicas
  /// are averaged, as in the checkpoint. Throws as save_checkpoint().
  std::filesystem::path save(const std::filesystem::path& directory, const Place& place,
                             const KeptCheckpoints& kept = {});
  /// Goes on from the newest checkpoint in `directory`, or from that folder, with its seed. Throws
  /// as load_checkpoint(), and ConfigError for one of another optimiser.
  /// `classes`: as check_same_classes().
  Place resume(const std::filesystem::path& directory,
               const std::vector<std::string>& classes = {});
  /// Ends the call that the other ranks are in or will make with this failure; does not throw.
  void give_up(const std::string& why) const;
  /// The learning rate of a step (from 0) by the options, and by the evaluations so far.
  double rate_of(int64_t step) const;
  /// Of dropout and of the order of samples.
  uint64_t seed() const { return options_.seed; }
  /// Throws ConfigError where a layer cannot train on a step of so many samples.
  void check_step(int64_t samples) const;
  /// Whether StepResult::correct means something.
  bool counts_correct() const { return counts_correct_; }
  const SampleSpec& sample() const { return sample_; }
  /// These samples: inputs [samples, ...] with the sizes of sample(), or with others that the model
  /// takes, such as longer or shorter sequences. Throws ConfigError saying which layer does not
  /// take them.
  std::shared_ptr<TensorDataset> data_of(const std::string& name, const model::Tensors& inputs,
                                         const at::Tensor& targets, bool with_targets = true) const;

 private:
  class Busy;

  runtime::Ranks ranks() const;
  /// Throws on all ranks where they make different calls, or where `call` throws on one. Returns
  /// rank 0's rates.
  std::vector<double> agree(const std::function<std::string()>& call,
                            const std::vector<double>& rates = {}) const;
  runtime::RunOptions run_options() const;
  /// `rates` as those of train().
  std::vector<StepResult> run(const Dataset& data, const std::vector<int64_t>& order, uint64_t seed,
                              int64_t batch_size, const std::vector<double>& rates,
                              const std::function<bool(const StepResult&)>& on_step,
                              const EpochPart& part = {});
  void check(const Dataset& data, int64_t batch_size) const;
  /// Throws RuntimeError after a failure that has left a part of a step.
  void require_whole_steps() const;

  const model::Model& model_;
  const model::SizedModels sized_{model_};
  TrainOptions options_;
  SampleSpec sample_;
  bool counts_correct_;
  PlannedModel planned_;
  model::ParameterOptimizers optimizers_;
  runtime::Pipeline pipeline_;
  std::optional<PlateauState> plateau_;  ///< of a schedule that follows evaluations
  WeightMeanState mean_;
  mutable std::atomic<bool> busy_{false};
};

}  // namespace penstock::train
