#include "penstock/train/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "penstock/plan/gradient_sync.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/trainer.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/rng.h"

namespace penstock::train {

namespace {

StepResult result_of(const runtime::MiniBatchStats& stats, int64_t targets) {
  return {.loss = stats.mean_loss(),
          .samples = stats.samples,
          .targets = targets,
          .correct = stats.correct,
          .grad_norm = stats.gradient_norm};
}

TrainOptions checked(TrainOptions options) {
  validate(options);
  if (options.world != nullptr) throw ConfigError("a session trains in one process");
  const std::string& rate = options.learning_rate.schedule;
  if ((rate == "cosine" || rate == "linear") && options.learning_rate_steps < 1) {
    throw ConfigError(
        fmt::format("the learning-rate schedule {} ends at the last step: expected the number of "
                    "steps in all (total_steps)",
                    rate));
  }
  return options;
}

}  // namespace

Session::Session(const model::Model& model, const TrainOptions& options)
    : model_(model),
      options_(checked(options)),
      sample_(samples_for(model, options.loss)),
      counts_correct_(model::counts_correct(model, model::loss_for(model, options.loss))),
      optimizer_(model::make_optimizer(options.optimizer)),
      pipeline_(model, plan::stage_of_layer(options.plan, model.graph()), options.plan.replicas(),
                *optimizer_,
                {.seed = options.seed,
                 .threads_per_worker = options.threads_per_worker,
                 .deadline = options.deadline,
                 .worker_of_replica = options.plan.worker_of_replica,
                 .gradient_groups = options.gradient_groups,
                 .sync = plan::parse_gradient_sync(options.plan.sync),
                 .precision = plan::parse_sync_precision(options.plan.sync_precision),
                 .rounded_layers = options.rounded_layers,
                 .staleness = options.staleness,
                 .loss = model::make_loss(model::loss_for(model, options.loss))}) {}

double Session::rate_of(int64_t step) const {
  // Schedules that do not end need no length.
  const int64_t length = std::max(options_.learning_rate_steps, step + 1);
  return rate_factor_ * learning_rate(options_.learning_rate, step, length);
}

double Session::rate() const { return rate_of(pipeline_.steps()); }

runtime::RunOptions Session::run_options() const {
  runtime::RunOptions options;
  options.learning_rate = [this](int64_t step) { return rate_of(step); };
  if (std::isfinite(options_.max_grad_norm)) options.max_grad_norm = options_.max_grad_norm;
  options.stop = options_.stop;
  options.on_stuck = options_.on_stuck;
  options.max_timeline_events = 0;
  return options;
}

void Session::check(const Dataset& data, int64_t batch_size) const {
  if (batch_size < 1)
    throw ConfigError(fmt::format("the batch size must be at least 1, found {}", batch_size));
  TrainOptions options = options_;
  options.mini_batch_size = batch_size;
  // Only its samples' shapes are looked at.
  const std::shared_ptr<const Dataset> borrowed(std::shared_ptr<void>(), &data);
  check_trainable(model_, {borrowed, borrowed}, options);
}

std::vector<StepResult> Session::run(const Dataset& data, const std::vector<int64_t>& order,
                                     uint64_t seed, int64_t batch_size,
                                     const std::function<bool(const StepResult&)>& on_step) {
  const auto samples = static_cast<int64_t>(order.size());
  const BatchCut cut(samples, batch_size, options_.plan.micro_batches);
  const EpochBatches batches(data, order, 0, cut, seed);
  const bool has_norm = options_.max_grad_norm > 0 || pipeline_.needs_norm();
  const schedule::Schedule schedule =
      training_schedule(options_.plan, pipeline_.links(), samples, batch_size, has_norm);
  runtime::RunOptions options = run_options();
  options.credits = check_schedule(schedule);
  options.on_mini_batch = [&](MiniBatchId id, const runtime::MiniBatchStats& stats) {
    const bool goes_on = std::isfinite(stats.loss_sum);
    if (!on_step) return goes_on;
    return on_step(result_of(stats, batches.mini_batch_targets(id))) && goes_on;
  };
  const runtime::RunResult run = pipeline_.run(schedule, batches, options);
  std::vector<StepResult> results;
  for (const runtime::MiniBatchStats& stats : run.mini_batches) {
    const MiniBatchId id{static_cast<int64_t>(results.size())};
    results.push_back(result_of(stats, batches.mini_batch_targets(id)));
    if (!std::isfinite(stats.loss_sum)) {
      throw RuntimeError(
          fmt::format("the loss is no longer finite (step {}); a smaller learning rate, or a "
                      "warm-up of it, may "
                      "help",
                      pipeline_.steps()));
    }
  }
  return results;
}

/// A session has one pipeline: who finds it busy is told, instead of waiting for himself.
class Session::Busy {
 public:
  explicit Busy(std::atomic<bool>& busy) : busy_(busy) {
    if (busy_.exchange(true))
      throw RuntimeError("it is training already, on another thread or around this callback");
  }
  ~Busy() { busy_.store(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& busy_;
};

StepResult Session::step(const Batch& batch) {
  const Busy busy(busy_);
  if (batch.inputs.size() != sample_.inputs.size()) {
    throw ConfigError(fmt::format("expected {} input(s), found {}: the model and its loss take {}",
                                  sample_.inputs.size(), batch.inputs.size(), describe(sample_)));
  }
  const TensorDataset data("the batch", sample_, batch.inputs, batch.targets,
                           options_.loss.ignore_index);
  // Once they have changed the weights it is too late.
  const auto bad = data.bad_samples(1);
  if (!bad.empty()) throw ConfigError(bad.front().reason);
  std::vector<int64_t> order(static_cast<size_t>(data.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  const uint64_t seed = derive_seed(options_.seed, hash_name("step"), pipeline_.steps());
  const std::vector<StepResult> results = run(data, order, seed, data.size(), {});
  if (results.empty()) throw RuntimeError("interrupted");
  return results.front();
}

std::vector<StepResult> Session::train(const Dataset& data, const std::vector<int64_t>& order,
                                       int64_t epoch, int64_t batch_size,
                                       const std::function<bool(const StepResult&)>& on_step) {
  const Busy busy(busy_);
  check(data, batch_size);
  if (order.empty()) return {};
  std::vector<StepResult> results =
      run(data, order, derive_seed(options_.seed, epoch), batch_size, on_step);
  pipeline_.average_buffers();
  return results;
}

StepResult Session::evaluate(const Dataset& data, int64_t batch_size) {
  const Busy busy(busy_);
  check(data, batch_size);
  const BatchCut cut(data.size(), batch_size, 1);
  const schedule::Schedule schedule =
      evaluation_schedule(options_.plan, pipeline_.links(), cut.num_micro_batches());
  runtime::RunOptions options = run_options();
  options.credits = check_schedule(schedule);
  const std::vector<int64_t> order = epoch_order(data.size(), 0, 0, /*shuffle=*/false);
  const EpochBatches batches(data, order, 0, cut, options_.seed);
  const runtime::RunResult run = pipeline_.run(schedule, batches, options);
  StepResult sum;
  for (const runtime::MiniBatchStats& stats : run.mini_batches) {
    sum.loss += stats.loss_sum;
    sum.samples += stats.samples;
    sum.correct += stats.correct;
  }
  if (sum.samples < data.size()) throw RuntimeError("interrupted");
  sum.loss /= static_cast<double>(sum.samples);
  for (int64_t t = 0; t < cut.num_mini_batches(); ++t)
    sum.targets += batches.mini_batch_targets(MiniBatchId{t});
  return sum;
}

std::vector<runtime::LayerSnapshot> Session::snapshot() const {
  const Busy busy(busy_);
  return pipeline_.snapshot();
}

void Session::load(const std::vector<runtime::LayerSnapshot>& layers, int64_t steps) {
  const Busy busy(busy_);
  pipeline_.load(layers, steps);
}

}  // namespace penstock::train
