#include "penstock/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "penstock/runtime/pipeline.h"
#include "penstock/schedule/generate.h"
#include "penstock/train/checkpoint.h"
#include "penstock/train/epoch_batches.h"
#include "penstock/train/peak_memory.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/rng.h"
#include "penstock/verify/verify.h"

namespace penstock::train {

using schedule::Schedule;

namespace {

/// Messages per channel; a schedule that needs more gets more.
constexpr int64_t kLeastCredits = 4;
constexpr size_t kFinalLosses = 50;

void check_options(const TrainOptions& options) {
  const auto at_least = [](const char* what, int64_t value, int64_t least) {
    if (value < least) throw ConfigError(fmt::format("{} must be at least {}, found {}", what, least, value));
  };
  at_least("the mini-batch size", options.mini_batch_size, 1);
  at_least("the number of epochs", options.epochs, 0);
  at_least("the number of steps", options.max_steps, 0);
  at_least("the number of warm-up steps", options.warmup_steps, 0);
  at_least("the number of threads per worker", options.threads_per_worker, 1);
  at_least("micro_batches of the plan", options.plan.micro_batches, 1);
  validate(options.learning_rate);
}

/// Refuses to run what the verifier objects to; returns the channels' capacity.
int64_t check_schedule(const Schedule& schedule) {
  const int64_t credits = std::max(kLeastCredits, verify::min_credits(schedule));
  const auto violations = verify::verify(schedule, {.credits = credits, .max_violations = 1});
  if (!violations.empty()) {
    throw ConfigError(fmt::format("the schedule is not sound ({}): {}", violations.front().rule, violations.front().message));
  }
  return credits;
}

double samples_per_second(int64_t samples, int64_t ns) { return ns > 0 ? static_cast<double>(samples) * 1e9 / static_cast<double>(ns) : 0; }

/// One call of train().
class Run {
 public:
  Run(const model::Model& model, const DataSplit& data, const TrainOptions& options)
      : model_(model),
        data_(data),
        options_(options),
        seed_(options.seed),
        optimizer_(model::make_optimizer(options.optimizer)),
        pipeline_(model, plan::stage_of_layer(options.plan, model.graph()), options.plan.replicas(), *optimizer_,
                  {.seed = options.seed, .threads_per_worker = options.threads_per_worker, .deadline = options.deadline}),
        mini_batches_per_epoch_(ceil_div(data.train->size(), options.mini_batch_size)) {}

  TrainResult run();

 private:
  int64_t total_steps() const {
    const int64_t whole = saturating_mul(options_.epochs, mini_batches_per_epoch_);
    return options_.max_steps > 0 ? std::min(options_.max_steps, whole) : whole;
  }
  bool stopped() const { return result_.interrupted || pipeline_.steps() >= total_steps(); }
  void resume();
  void run_epoch();
  /// Runs mini-batches [next_mini_batch_, next_mini_batch_ + count) of the epoch.
  void run_segment(const std::vector<int64_t>& order, int64_t count, bool measured, EpochSummary& summary);
  void account(const runtime::RunResult& run, int64_t samples, bool measured, EpochSummary& summary);
  void evaluate(EpochSummary& summary);
  void save();

  const model::Model& model_;
  const DataSplit& data_;
  const TrainOptions& options_;
  uint64_t seed_;
  std::unique_ptr<model::Optimizer> optimizer_;
  runtime::Pipeline pipeline_;
  int64_t mini_batches_per_epoch_;
  int64_t epoch_ = 0;
  int64_t next_mini_batch_ = 0;
  int64_t warmup_left_ = 0;
  int64_t epoch_correct_ = 0;
  int64_t epoch_samples_ = 0;
  int64_t measured_ns_ = 0;
  int64_t measured_samples_ = 0;
  double idle_ns_ = 0;
  double worker_ns_ = 0;
  TrainResult result_;
};

void Run::resume() {
  if (!has_checkpoint(options_.checkpoint)) return;
  const Checkpoint checkpoint = load_checkpoint(options_.checkpoint, model_);
  if (checkpoint.optimizer != options_.optimizer.name) {
    throw ConfigError(fmt::format("the checkpoint was made with optimiser '{}', this run uses '{}'", checkpoint.optimizer, options_.optimizer.name));
  }
  if (checkpoint.next_mini_batch > 0 && checkpoint.mini_batch_size != options_.mini_batch_size) {
    throw ConfigError(fmt::format("the checkpoint lies inside an epoch of mini-batches of {} samples, this run has {}: resume with the same size",
                                  checkpoint.mini_batch_size, options_.mini_batch_size));
  }
  std::vector<runtime::LayerSnapshot> layers;
  for (const LayerState& state : checkpoint.layers) {
    runtime::LayerSnapshot& layer = layers.emplace_back(runtime::LayerSnapshot{state.weights, state.buffers, {}});
    for (const std::string& name : optimizer_->state_names()) layer.optimizer_state.push_back(state.optimizer.at(name));
  }
  pipeline_.load(layers, checkpoint.step);
  epoch_ = checkpoint.epoch;
  next_mini_batch_ = checkpoint.next_mini_batch;
  if (options_.observer != nullptr) {
    options_.observer->on_message(fmt::format("resumed after {} steps (epoch {}, mini-batch {}){}", checkpoint.step, epoch_ + 1, next_mini_batch_,
                                              checkpoint.seed != seed_ ? fmt::format(", with the checkpoint's seed {}", checkpoint.seed) : ""));
  }
  seed_ = checkpoint.seed;
}

void Run::save() {
  if (options_.checkpoint.empty()) return;
  Checkpoint checkpoint{.model = model_.name(),
                        .epoch = epoch_,
                        .next_mini_batch = next_mini_batch_,
                        .step = pipeline_.steps(),
                        .seed = seed_,
                        .mini_batch_size = options_.mini_batch_size,
                        .optimizer = options_.optimizer.name,
                        .layers = {}};
  const auto names = optimizer_->state_names();
  for (runtime::LayerSnapshot& layer : pipeline_.snapshot()) {
    LayerState& state = checkpoint.layers.emplace_back(LayerState{std::move(layer.weights), std::move(layer.buffers), {}});
    for (size_t s = 0; s < names.size(); ++s) state.optimizer[names[s]] = std::move(layer.optimizer_state[s]);
  }
  const auto folder = save_checkpoint(options_.checkpoint, model_, checkpoint);
  if (options_.observer != nullptr) options_.observer->on_message("checkpoint: " + folder.string());
}

TrainResult Run::run() {
  warmup_left_ = options_.warmup_steps;
  if (options_.resume) resume();
  reset_peak_memory();
  while (epoch_ < options_.epochs && !stopped()) run_epoch();
  // A finished run that is asked for again has nothing to train, but still something to say.
  if (result_.epochs.empty() && options_.evaluate && !result_.interrupted) {
    EpochSummary summary;
    evaluate(summary);
    result_.test_accuracy = summary.test_accuracy;
  }
  result_.peak_memory_bytes = peak_memory_bytes();
  result_.throughput_samples_per_s = samples_per_second(measured_samples_, measured_ns_);
  result_.idle_share = worker_ns_ > 0 ? idle_ns_ / worker_ns_ : 0;
  result_.steps = pipeline_.steps();
  const size_t last = std::min(kFinalLosses, result_.losses.size());
  if (last > 0) result_.final_loss = std::accumulate(result_.losses.end() - static_cast<std::ptrdiff_t>(last), result_.losses.end(), 0.0) / static_cast<double>(last);
  return std::move(result_);
}

void Run::run_epoch() {
  const std::vector<int64_t> order = epoch_order(data_.train->size(), seed_, epoch_, options_.shuffle);
  EpochSummary summary;
  summary.epoch = epoch_;
  epoch_correct_ = 0;
  epoch_samples_ = 0;
  const auto remaining = [&]() { return std::min(mini_batches_per_epoch_ - next_mini_batch_, total_steps() - pipeline_.steps()); };
  if (warmup_left_ > 0 && remaining() > 0) {
    const int64_t count = std::min(warmup_left_, remaining());
    run_segment(order, count, /*measured=*/false, summary);
    warmup_left_ -= count;
  }
  if (!result_.interrupted && remaining() > 0) run_segment(order, remaining(), /*measured=*/true, summary);

  if (epoch_samples_ > 0) {
    summary.loss /= static_cast<double>(epoch_samples_);
    summary.train_accuracy = static_cast<double>(epoch_correct_) / static_cast<double>(epoch_samples_);
    summary.samples_per_s = samples_per_second(epoch_samples_, summary.train_ns);
  }
  if (next_mini_batch_ == mini_batches_per_epoch_) {
    ++epoch_;
    next_mini_batch_ = 0;
    pipeline_.average_buffers();
  }
  save();
  if (options_.evaluate && !result_.interrupted) evaluate(summary);
  result_.epochs.push_back(summary);
  if (summary.test_accuracy) result_.test_accuracy = summary.test_accuracy;
  if (options_.observer != nullptr) options_.observer->on_epoch(summary);
}

void Run::run_segment(const std::vector<int64_t>& order, int64_t count, bool measured, EpochSummary& summary) {
  const int64_t first = next_mini_batch_ * options_.mini_batch_size;
  const int64_t samples = std::min(count * options_.mini_batch_size, data_.train->size() - first);
  const BatchCut cut(samples, options_.mini_batch_size, options_.plan.micro_batches);
  const Schedule schedule = training_schedule(options_.plan, pipeline_.links(), samples, options_.mini_batch_size);
  const int64_t credits = check_schedule(schedule);
  const EpochBatches batches(*data_.train, order, first, cut, derive_seed(seed_, epoch_));

  const int64_t total = total_steps();
  std::atomic<bool> diverged{false};
  std::atomic<bool> halt{false};
  const auto start = std::chrono::steady_clock::now();
  int64_t done_samples = 0;
  int64_t done = 0;
  int64_t correct = epoch_correct_;
  runtime::RunOptions run_options;
  run_options.credits = credits;
  run_options.learning_rate = [this, total](int64_t step) { return learning_rate(options_.learning_rate, step, total); };
  run_options.stop = &halt;
  run_options.on_mini_batch = [&](MiniBatchId, const runtime::MiniBatchStats& stats) {
    done_samples += stats.samples;
    correct += stats.correct;
    ++done;
    if (!std::isfinite(stats.loss_sum)) diverged = true;
    if (diverged || (options_.stop != nullptr && options_.stop->load())) halt = true;
    if (options_.observer == nullptr) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    options_.observer->on_mini_batch({.epoch = epoch_,
                                      .epochs = options_.epochs,
                                      .mini_batch = next_mini_batch_ + done,
                                      .mini_batches = mini_batches_per_epoch_,
                                      .samples = done_samples,
                                      .loss = stats.mean_loss(),
                                      .accuracy = static_cast<double>(correct) / static_cast<double>(epoch_samples_ + done_samples),
                                      .samples_per_s = static_cast<double>(done_samples) / std::max(seconds, 1e-9)});
  };
  if (options_.stop != nullptr && options_.stop->load()) halt = true;
  runtime::RunResult run = pipeline_.run(schedule, batches, run_options);
  if (diverged) {
    throw RuntimeError(fmt::format("the loss is no longer finite (step {}); a smaller --lr, or a warm-up of the learning rate, may help", pipeline_.steps()));
  }
  const auto finished = static_cast<int64_t>(run.mini_batches.size());
  next_mini_batch_ += finished;
  result_.interrupted = finished < cut.num_mini_batches();
  int64_t finished_samples = 0;
  for (const auto& stats : run.mini_batches) finished_samples += stats.samples;
  account(run, finished_samples, measured, summary);
  if (measured) {
    result_.timeline = std::move(run.timeline);
    result_.schedule = schedule;
    result_.peak_versions = std::move(run.peak_versions);
  }
}

void Run::account(const runtime::RunResult& run, int64_t samples, bool measured, EpochSummary& summary) {
  for (const auto& stats : run.mini_batches) {
    result_.losses.push_back(stats.mean_loss());
    summary.loss += stats.loss_sum;
    epoch_correct_ += stats.correct;
  }
  epoch_samples_ += samples;
  summary.train_ns += run.wall_ns;
  if (!measured) return;
  measured_ns_ += run.wall_ns;
  measured_samples_ += samples;
  const double span = static_cast<double>(run.timeline.makespan_ns()) * static_cast<double>(run.timeline.workers.size());
  idle_ns_ += run.timeline.idle_share() * span;
  worker_ns_ += span;
}

void Run::evaluate(EpochSummary& summary) {
  const int64_t size = data_.test->size();
  if (size == 0) return;
  const int64_t batch = ceil_div(options_.mini_batch_size, std::min(options_.plan.micro_batches, options_.mini_batch_size));
  const BatchCut cut(size, batch, 1);
  const Schedule schedule = lower(generate(schedule::Kind::ForwardOnly, {.replicas = options_.plan.replicas(), .micro_batches = cut.num_micro_batches()}),
                                  pipeline_.links());
  const int64_t credits = check_schedule(schedule);
  const std::vector<int64_t> order = epoch_order(size, 0, 0, /*shuffle=*/false);
  runtime::RunOptions run_options;
  run_options.credits = credits;
  run_options.stop = options_.stop;
  run_options.max_timeline_events = 0;
  const runtime::RunResult run = pipeline_.run(schedule, EpochBatches(*data_.test, order, 0, cut, seed_), run_options);
  double loss = 0;
  int64_t correct = 0;
  int64_t samples = 0;
  for (const auto& stats : run.mini_batches) {
    loss += stats.loss_sum;
    correct += stats.correct;
    samples += stats.samples;
  }
  if (samples < size) {  // stopped in the middle: no number is better than a partial one
    result_.interrupted = true;
    return;
  }
  summary.test_loss = loss / static_cast<double>(size);
  summary.test_accuracy = static_cast<double>(correct) / static_cast<double>(size);
}

}  // namespace

Schedule training_schedule(const plan::Plan& plan, const std::vector<schedule::StageLink>& links, int64_t samples, int64_t mini_batch_size) {
  const BatchCut cut(samples, mini_batch_size, plan.micro_batches);
  const schedule::Kind kind = schedule::parse_kind(plan.strategy);
  const schedule::WeightPolicy policy = plan.weights.empty() ? schedule::default_policy(kind) : schedule::parse_weight_policy(plan.weights);
  return lower(generate(kind, {.replicas = plan.replicas(), .micro_batches = cut.num_micro_batches(), .accumulate = cut.micro_batches, .policy = policy}),
               links);
}

TrainResult train(const model::Model& model, const DataSplit& data, const TrainOptions& options) {
  check_options(options);
  if (data.train->size() < 1) throw ConfigError("the training set is empty");
  return Run(model, data, options).run();
}

}  // namespace penstock::train
