// What a user asks of a training: plain values in sections, without libtorch. `std::optional` is
// for "not chosen". The command line, Python and checkpoints read and write them by the rows of
// rows.h; nothing else needs to know their names.
//
//   TrainRequest request{.model = {.name = "mlp"}};
//   request.plan.workers = 4;
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/model/frozen_type.h"
#include "penstock/model/loss_spec.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/net/fabric_kind.h"
#include "penstock/net/tls_choice.h"
#include "penstock/options/large_batch.h"
#include "penstock/plan/boundary_coding.h"
#include "penstock/plan/compensation.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/strategy.h"
#include "penstock/plan/weight_policy.h"
#include "penstock/train/data/class_order.h"
#include "penstock/train/data/length_choice.h"
#include "penstock/train/learning_rate.h"
#include "penstock/train/train_options.h"
#include "penstock/util/numbers/precision.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::options {

struct ModelRequest {
  std::string name;   ///< of the zoo, or a file of torch.export
  int64_t width = 0;  ///< 0: the model's own, here and below
  int64_t depth = 0;
  int64_t kernel = 0;
  int64_t heads = 0;
  bool untied = false;
  int64_t embedding = 0;
  std::optional<double> dropout = {};
  int64_t classes = 0;
  std::string input = {};            ///< "1x32x32"; empty: the model's own
  std::optional<int64_t> lora = {};  ///< rank of adapters; nothing: all is trained as the file says
  std::string lora_targets = "all-linear";  ///< exported::parse_adapter_targets()
  double lora_alpha = 8;
  model::FrozenType frozen_weights = model::FrozenType::AsStored;
};

/// What becomes of samples that cannot be used.
enum class BadSamples : uint8_t { Fatal, Skip };

struct DataRequest {
  std::optional<std::string> name;  ///< nothing: kUsualData
  std::string folder;
  std::optional<int64_t> train_samples;  ///< nothing: all, here and below
  std::optional<int64_t> test_samples;
  std::string test_file;    ///< empty: the test samples of `name`, or a part of its samples
  double test_share = 0.1;  ///< that part
  BadSamples bad_samples = BadSamples::Fatal;
  train::ClassOrder class_order = train::ClassOrder::Text;
  bool turns_images = false;
  bool bytes_are_tokens = false;
  std::optional<int64_t> threads;  ///< that make inputs ahead of their use; nothing: chosen
  bool shuffle = true;
  train::Lengths lengths = train::Lengths::Whole;  ///< of sequences
  bool carry_state = false;                        ///< of LSTMs, from window to window of a text
  bool drop_last = false;  ///< an epoch ends before a mini-batch that would not be full
  bool evaluate = true;
  std::optional<int64_t> eval_every;    ///< steps; nothing: after each epoch alone
  std::optional<train::Metric> metric;  ///< nothing: the loss
  std::optional<double> target;         ///< of the metric, where the run ends; nothing: nowhere
  int64_t beam = 1;                     ///< of the metric bleu
  double length_penalty = 0.6;          ///< as beam
  double coverage_penalty = 0;          ///< as beam
};
inline constexpr const char* kUsualData = "fashion-mnist";
/// Data whose classes are easy to tell apart: the usual rate makes models without normalisation
/// diverge soon after they have learned them.
inline constexpr const char* kMadeData = "synthetic";
inline constexpr double kMadeDataRate = 0.01;

/// How replicas add their gradients; nothing: the fastest method that was predicted.
struct SyncRequest {
  std::optional<plan::SyncMethod> method;

  bool is(plan::GradientSync sync) const { return method && method->sync == sync; }
};

/// How values travel between stages; nothing: chosen for each boundary.
struct BoundaryRequest {
  std::optional<plan::BoundaryCoding> coding;
};

struct PlanSection {
  std::string file;                        ///< a plan that is made; empty: make one
  std::optional<plan::Strategy> strategy;  ///< nothing: chosen, here and below
  std::optional<int64_t> workers;
  std::optional<int> tensor = 1;  ///< members of each replica's team; nothing: chosen
  bool sequence = false;          ///< plan::Stage::sequence of all stages with teams
  std::string profile;            ///< a file; empty: measure
  std::string profile_cache;      ///< job::cache_choice()
  std::optional<int64_t> micro_batches;
  std::optional<int64_t> chunks;
  std::optional<int64_t> slack;
  std::optional<int64_t> keep;
  std::optional<plan::WeightPolicy> weights;
  std::optional<plan::Compensation> compensation;  ///< nothing: the file's, or none
  std::optional<SyncRequest> sync;                 ///< nothing: the file's, or auto
  std::optional<BoundaryRequest> boundary;         ///< nothing: the file's, or float32
  std::optional<FloatType> gradient_precision;  ///< nothing: the file's, or float32, here and below
  std::optional<Precision> precision;
  bool shard_optimizer = false;
  bool straight = false;  ///< one worker per stage
};

struct RunRequest {
  int64_t epochs = 1;
  std::optional<int64_t> steps;           ///< optimiser steps; nothing: whole epochs
  std::optional<int64_t> schedule_steps;  ///< of the learning rate's schedule; nothing: the run's
  int64_t warmup_steps = 0;               ///< first steps, which do not count for throughput
  std::optional<int64_t> batch_size;  ///< samples per step; nothing: the file's of the plan, or 64
  double clip_norm = 0;               ///< 0: gradients are not clipped
  int64_t gradient_groups = 0;        ///< 0: the smallest possible number
  int64_t staleness = 4;
  plan::OuterStep outer = {};  ///< of diloco
  int threads = 1;             ///< per worker
  std::string device = "cpu";
  bool device_graphs = false;
  bool compile = false;  ///< the stages of a program, ahead of time
  net::FabricKind fabric = net::FabricKind::Auto;
  std::optional<net::TlsChoice> tls;  ///< nothing: as the launcher's variables say, else off
  int64_t deadline_s = 300;
  double silence_s = 12;
  double patience_s = 60;
  int stopped_exit_code = 0;          ///< of the command, when a signal has ended the run
  std::string checkpoint;             ///< a folder; empty: none
  std::optional<int64_t> save_every;  ///< steps; nothing: after each epoch alone
  int64_t keep_last = 2;              ///< checkpoints
  bool keep_best = false;             ///< the one with the best evaluation, too
  bool resume = false;
  bool check_against_serial = false;
  int64_t check_steps = 20;
  uint64_t seed = 1;
};
inline constexpr int64_t kUsualBatchSize = 64;

/// Rules that let a large mini-batch learn what a small one does; job/large_batch.h sets them.
struct LargeBatchSection {
  std::optional<LargeBatchRules> rules;  ///< nothing: no rule
  int64_t base = kUsualBatchSize;        ///< samples of a step for which the learning rate is given
};

/// How lines on standard error look.
enum class LogForm : uint8_t { Console, Text, Json };

struct OutputRequest {
  std::string history;
  std::string html;
  std::string trace;
  std::string log_folder;
  bool json = false;
};

/// What a run leaves for those who start it and watch it.
struct OperationRequest {
  std::string folder;  ///< with all that is needed to do it again; empty: none
  /// Of the first rank of a host, the others behind it; 0: any free one. Nothing: no numbers.
  std::optional<int> metrics_port;
  std::string metrics_address = "127.0.0.1";
  LogForm log = LogForm::Console;
  std::string health_file;  ///< empty: none
};

/// The request in a file (run_file.h).
struct RunFileSection {
  std::string config;   ///< that was read; empty: none
  bool prints = false;  ///< instead of running
};

struct TrainRequest {
  ModelRequest model = {};
  DataRequest data = {};
  model::OptimizerSpec optimizer = {};
  train::LearningRateSpec rates = {};
  LargeBatchSection large_batch = {};
  train::WeightMean mean = {};
  model::LossSpec loss = {};
  PlanSection plan = {};
  RunRequest run = {};
  OutputRequest output = {};
  OperationRequest operation = {};
  RunFileSection file = {};
};

/// Every worker is a thread of one process.
inline constexpr int kMaxThreads = 1024;

/// Of a number whose 0 says "not chosen" also where it is written.
inline std::optional<int64_t> unless_zero(int64_t number) {
  return number == 0 ? std::nullopt : std::optional(number);
}

/// The request's optimiser, with what other options make of it.
model::OptimizerSpec optimizer_of(const TrainRequest& request);
/// How the request trains; its plan, data and devices are found later.
train::TrainOptions train_options_of(const TrainRequest& request);

/// What can be said before a model is made or data is read. Throws ConfigError that names the
/// option.
void check(const TrainRequest& request);
/// Of a step's samples: the request's, or those of its plan. Throws ConfigError.
void check_batch_size(int64_t batch_size);

}  // namespace penstock::options
