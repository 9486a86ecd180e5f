// How a model is trained (trainer.h): a plain value without tensors.
//
//   TrainOptions options{.plan = plan, .mini_batch_size = 64, .epochs = 10};
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/loss_spec.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/plan/plan.h"
#include "penstock/train/data/length_choice.h"
#include "penstock/train/learning_rate.h"
#include "penstock/train/metric.h"
#include "penstock/train/weight_mean.h"

namespace penstock::runtime {
class World;
}

namespace penstock::train {

class TrainObserver;

struct TrainOptions {
  /// Stages, replicas, strategy and weight policy; micro_batches is taken from here.
  plan::Plan plan = {};
  int64_t mini_batch_size = 64;  ///< samples per optimiser step, over all workers
  int64_t epochs = 1;
  int64_t max_steps = 0;     ///< 0: whole epochs
  int64_t warmup_steps = 0;  ///< run first; not counted in throughput, idle share and timeline
  model::OptimizerSpec optimizer = {};
  LearningRateSpec learning_rate = {};
  /// False: where the rate changes, sgd goes on as if its momentum had the rate inside (Goyal et
  /// al. 2017, equation 10 without remark 2). For comparison.
  bool corrects_momentum = true;
  WeightMean mean = {};  ///< of the weights, which evaluations then take
  model::LossSpec loss = {};
  uint64_t seed = 1;
  int threads_per_worker = 1;
  /// Per worker, as libtorch names devices ("cpu", "cuda:1"), where there is no `world`; empty: the
  /// CPU.
  std::vector<std::string> device_of_worker = {};
  bool device_graphs = false;  ///< PipelineOptions::device_graphs
  /// That make the inputs of the next micro-batches where that takes long (Dataset::is_slow()), or
  /// a worker is on a GPU;
  /// 0: the first stage makes them when it needs them.
  int data_threads = 1;
  /// The gradient of all weights together is scaled down to this norm where it is larger (Pascanu
  /// et al. 2013), under every schedule; infinity: only records the norm; 0: neither.
  double max_grad_norm = 0;
  /// Length of the learning rate's schedule in steps; 0: the steps of this run.
  int64_t learning_rate_steps = 0;
  /// Under flush, gradients are accumulated in this many groups of micro-batches, for any number of
  /// replicas, so that runs on different numbers of workers agree bit for bit; a multiple of every
  /// stage's replicas. 0: the smallest possible number.
  int64_t gradient_groups = 0;
  /// Under the plan's sync `asynchronous`: how many steps a replica may be ahead of the slowest
  /// one.
  int64_t staleness = 4;
  /// Under the plan's sync `diloco`: how the common weights step at the end of a round, which is
  /// after every Plan::sync_every steps.
  plan::OuterStep outer = {};
  /// By layer: PipelineOptions::rounded_layers, in the plan's sync precision.
  std::vector<bool> rounded_layers = {};
  bool keep_weights = false;  ///< TrainResult::weights
  std::chrono::milliseconds deadline{300'000};
  bool shuffle = true;
  Lengths lengths = Lengths::Whole;  ///< of sequences
  /// Samples are windows of one text, one behind the other, whose states layers carry on
  /// (model::Layer::carried()); epochs and evaluations read it in `mini_batch_size` parts at once.
  bool carry_state = false;
  bool drop_last = false;  ///< an epoch ends before a mini-batch that would not be full
  bool evaluate = true;
  /// Also after every so many steps, for which the pipeline is emptied; 0: only after an epoch.
  int64_t eval_every = 0;
  std::optional<Metric> metric = {};  ///< of TrainResult::best_step and `target`; nothing: the loss
  /// The run ends with the first evaluation whose metric is at least as good; nothing: it does not.
  std::optional<double> target = {};
  int64_t beam = 1;             ///< DecodeOptions::beam, for the metric bleu
  double length_penalty = 0.6;  ///< BeamPenalties::length
  double coverage_penalty = 0;  ///< BeamPenalties::coverage
  /// Folder; empty: none. Saved after every epoch, and when the run is stopped.
  std::filesystem::path checkpoint = {};
  int64_t save_every = 0;  ///< and after so many steps, for which the pipeline is emptied; 0: not
  int64_t keep_last = 2;   ///< of the newest checkpoints that stay
  bool keep_best =
      false;  ///< so does the one with the best evaluation, which the link `best` names
  std::filesystem::path log_folder = {};  ///< RunLog, on rank 0; empty: none
  /// Continue from the newest checkpoint in the folder, if there is one.
  bool resume = false;
  /// What `plan` was made for, in words: checkpoints keep both, so that a run that asks for the
  /// same can go on with the same plan. Empty: they keep neither.
  std::string plan_request = {};
  /// The options that change what is learned, by name, in words: checkpoints keep them, so that a
  /// run that continues one can say what has changed.
  std::map<std::string, std::string> settings = {};
  const std::atomic<bool>* stop = nullptr;
  TrainObserver* observer = nullptr;  ///< on_mini_batch: on rank 0 only
  /// As runtime::RunOptions::on_stuck.
  std::function<void(const std::string& failure)> on_stuck = {};
  /// The ranks that train together, each calling train() with the same options, and a checkpoint
  /// folder that all of them share. Null: this process alone.
  runtime::World* world = nullptr;
};

}  // namespace penstock::train
