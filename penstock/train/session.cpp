#include "penstock/train/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>

#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/layer_states.h"
#include "penstock/train/checkpoint_checks.h"
#include "penstock/train/compensated_optimizer.h"
#include "penstock/train/data/data_digest.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/data/some_target.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/loss_mean.h"
#include "penstock/train/pipeline_options.h"
#include "penstock/train/predictions.h"
#include "penstock/train/rank_layers.h"
#include "penstock/train/rate_schedules.h"
#include "penstock/train/refused_batch.h"
#include "penstock/train/step_numbers.h"
#include "penstock/train/trainer.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

/// A rank may do something of its own between two calls; one that is gone is noticed at once.
constexpr std::chrono::hours kCalls{24};

StepResult result_of(const runtime::MiniBatchStats& stats, int64_t targets, double rate) {
  return {.loss = stats.mean_loss(),
          .samples = stats.samples,
          .targets = targets,
          .correct = stats.correct,
          .grad_norm = stats.gradient_norm,
          .learning_rate = rate};
}

/// Of the part of an epoch of so many samples. Throws ConfigError.
int64_t samples_of(const EpochPart& part, int64_t samples, int64_t batch_size) {
  const int64_t steps = ceil_div(samples, batch_size);
  if (part.first == 0 && !part.steps) return samples;
  if (part.first < 0 || part.first >= steps || part.steps.value_or(1) < 1) {
    throw ConfigError(fmt::format("expected steps of an epoch of {}, found {} from {} on", steps,
                                  part.steps.value_or(0), part.first));
  }
  const int64_t rest = samples - part.first * batch_size;
  return part.steps ? std::min(rest, saturating_mul(*part.steps, batch_size)) : rest;
}

TrainOptions checked(TrainOptions options) {
  validate(options);
  if (has_end(options.learning_rate) && options.learning_rate_steps < 1) {
    throw ConfigError(
        fmt::format("the learning-rate schedule {} ends at the last step: expected the number of "
                    "steps in all (total_steps)",
                    options.learning_rate.schedule));
  }
  if (traits(options.plan.compensation).divides_rate && options.learning_rate_steps < 1) {
    throw ConfigError(
        fmt::format("the compensation {} fades over the first quarter of all steps: expected the "
                    "number of steps in all (total_steps)",
                    to_string(options.plan.compensation)));
  }
  return options;
}

}  // namespace

Session::Session(const model::Model& model, const TrainOptions& options)
    : model_(model),
      options_(checked(options)),
      sample_(samples_for(model, options.loss)),
      counts_correct_(model::counts_correct(model, model::loss_for(model, options.loss))),
      planned_(model, options.plan, options.loss),
      optimizers_(model, compensated_optimizer(optimizer_of(options), options.plan.compensation)),
      pipeline_(planned_.model(), planned_.stage_of_layer(), planned_.replicas(),
                optimizers_.general(), pipeline_options(planned_, options, optimizers_)) {
  if (!plateau_of(options_.learning_rate.schedule, Metric::Loss)) return;
  plateau_ = PlateauState{.rate = top_rate(options_.learning_rate),
                          .first = top_rate(options_.learning_rate)};
}

runtime::Ranks Session::ranks() const { return {.world = options_.world, .deadline = kCalls}; }

std::vector<double> Session::agree(const std::function<std::string()>& call,
                                   const std::vector<double>& rates) const {
  // Beside the call rank 0 says its rates, which a callback may have changed there.
  const std::vector<std::string> texts = runtime::together(ranks(), [&] {
    std::string text = call();
    text += '\0';
    if (!ranks().is_first()) return text;
    text.append(reinterpret_cast<const char*>(rates.data()), rates.size() * sizeof(double));
    return text;
  });
  const auto call_of = [&](size_t rank) { return texts[rank].substr(0, texts[rank].find('\0')); };
  for (size_t r = 1; r < texts.size(); ++r) {
    if (call_of(r) == call_of(0)) continue;
    throw ConfigError(
        fmt::format("the ranks must make the same calls with the same data: rank 0 {}, rank {} {}",
                    call_of(0), r, call_of(r)));
  }
  const size_t begin = call_of(0).size() + 1;
  std::vector<double> first((texts[0].size() - begin) / sizeof(double));
  if (!first.empty())
    std::memcpy(first.data(), texts[0].data() + begin, first.size() * sizeof(double));
  for (const double rate : first) {
    if (!std::isfinite(rate) || rate < 0) {
      throw ConfigError(
          fmt::format("learning rate: expected a number of at least 0, found {}", rate));
    }
  }
  return first;
}

void Session::give_up(const std::string& why) const {
  try {
    runtime::together(ranks(), [&]() -> std::string { throw RuntimeError(why); });
  } catch (const Error&) {  // the caller knows
  }
}

double Session::rate_of(int64_t step) const {
  const double planned = learning_rate(options_.learning_rate, step, options_.learning_rate_steps);
  return plateau_ ? on_plateau(planned, *plateau_) : planned;
}

runtime::RunOptions Session::run_options() const {
  runtime::RunOptions options;
  options.learning_rate = [this](int64_t step) { return rate_of(step); };
  options.fade_steps = fade_steps(options_.learning_rate_steps);
  options.momentum = [this](int64_t step) {
    return step_momentum(options_, step, options_.learning_rate_steps);
  };
  options.average_share = [this](int64_t step) {
    return average_share(options_.mean, mean_, step);
  };
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
  std::vector<model::Shape> shapes;
  for (const model::InputSpec& input : data.sample().inputs) shapes.push_back(input.shape);
  check_trainable(*sized_.of(shapes), {borrowed, borrowed}, options);
}

std::shared_ptr<TensorDataset> Session::data_of(const std::string& name,
                                                const model::Tensors& inputs,
                                                const at::Tensor& targets,
                                                bool with_targets) const {
  std::vector<model::Shape> shapes = model_.input_shapes();
  for (size_t i = 0; i < std::min(inputs.size(), shapes.size()); ++i) {
    const at::IntArrayRef sizes = inputs[i].sizes();
    if (sizes.size() == shapes[i].size() + 1) shapes[i].assign(sizes.begin() + 1, sizes.end());
  }
  SampleSpec sample = sample_;
  std::string refusal;
  try {
    sample = samples_for(*sized_.of(shapes), options_.loss);
  } catch (const ConfigError& error) {  // images whose channels are last are taken all the same
    refusal = error.what();
  }
  if (!with_targets) {
    sample.targets = {};
    sample.targets.needed = false;
  }
  std::shared_ptr<TensorDataset> data;
  try {
    data =
        std::make_shared<TensorDataset>(name, sample, inputs, targets, options_.loss.ignore_index);
  } catch (const ConfigError& error) {
    if (refusal.empty()) throw;
    throw ConfigError(
        fmt::format("{}. Of the sizes found the model says: {}", error.what(), refusal));
  }
  // Once they have changed the weights it is too late.
  const auto bad = data->bad_samples(1);
  if (!bad.empty()) throw ConfigError(bad.front().reason);
  return data;
}

void Session::check_step(int64_t samples) const {
  const BatchCut cut(samples, samples, options_.plan.micro_batches);
  if (const auto refused = refused_batch(model_, cut)) throw ConfigError(explain(*refused, ""));
}

void Session::require_whole_steps() const {
  if (!pipeline_.is_torn()) return;
  throw RuntimeError(
      fmt::format("the call before has failed after step {}, when some stages had made a step more "
                  "than others, so there are no weights of one step: resume from a checkpoint, or "
                  "begin anew",
                  pipeline_.steps()));
}

std::vector<StepResult> Session::run(const Dataset& data, const std::vector<int64_t>& order,
                                     uint64_t seed, int64_t batch_size,
                                     const std::vector<double>& rates,
                                     const std::function<bool(const StepResult&)>& on_step,
                                     const EpochPart& part) {
  const int64_t first = part.first * batch_size;
  const int64_t samples = samples_of(part, static_cast<int64_t>(order.size()), batch_size);
  const BatchCut cut(samples, batch_size, options_.plan.micro_batches);
  if (const auto refused = refused_batch(model_, cut))
    throw ConfigError(explain(*refused, "drop_last"));
  const EpochBatches batches(data, order, first, cut, seed, Lengths::Batch);
  const bool has_norm = wants_norm(options_) || pipeline_.needs_norm();
  const schedule::Schedule schedule =
      training_schedule(options_.plan, pipeline_.links(), samples, batch_size, has_norm);
  runtime::RunOptions options = run_options();
  options.credits = check_schedule(schedule);
  const int64_t before = steps();
  const auto rate = [&](int64_t step) {
    return rates.empty() ? rate_of(step) : rates.at(static_cast<size_t>(step - before));
  };
  options.learning_rate = rate;
  const auto result = [&](MiniBatchId id, const runtime::MiniBatchStats& stats) {
    return result_of(stats, batches.mini_batch_targets(id), rate(before + id.value));
  };
  options.on_mini_batch = [&](MiniBatchId id, const runtime::MiniBatchStats& stats) {
    const bool goes_on = std::isfinite(stats.loss_sum);
    if (!on_step) return goes_on;
    return on_step(result(id, stats)) && goes_on;
  };
  const runtime::RunResult run = pipeline_.run(schedule, batches, options);
  std::vector<StepResult> results;
  for (const runtime::MiniBatchStats& stats : run.mini_batches) {
    const MiniBatchId id{static_cast<int64_t>(results.size())};
    results.push_back(result(id, stats));
    if (!std::isfinite(stats.loss_sum)) {
      throw RuntimeError(
          fmt::format("the loss is no longer finite (step {}); a smaller learning rate, or a "
                      "warm-up of it, may help{}{}",
                      pipeline_.steps(), advice_on_rounds(options_.plan),
                      advice_on_own_loss(model_, options_)));
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

void Session::observe(double value, bool rises) {
  const Busy busy(busy_);
  agree([&] {
    if (!plateau_ && !options_.mean.swa_patience) {
      throw ConfigError(
          fmt::format("no learning rate and no mean of the weights follows evaluations: expected "
                      "the schedule {}, or a mean with a trigger",
                      kPlateauName));
    }
    if (rises && plateau_ &&
        !plateau_of(options_.learning_rate.schedule, Metric::Accuracy)->rises) {
      throw ConfigError(fmt::format(
          "the schedule {} has the mode min, and rises says that more is better: expected a "
          "schedule of the mode max, or values that fall",
          kPlateauName));
    }
    return fmt::format("observes {} after {} steps", value, steps());
  });
  const Metric metric = rises ? Metric::Accuracy : Metric::Loss;
  if (plateau_)
    train::observe(*plateau_of(options_.learning_rate.schedule, metric), value, *plateau_);
  train::observe(options_.mean, metric, value, steps(), mean_);
}

StepResult Session::step(const Batch& batch, std::optional<double> rate) {
  const Busy busy(busy_);
  std::shared_ptr<TensorDataset> data;
  const auto call = [&] {
    require_whole_steps();
    if (batch.inputs.size() != sample_.inputs.size()) {
      throw ConfigError(
          fmt::format("expected {} input(s), found {}: the model and its loss take {}",
                      sample_.inputs.size(), batch.inputs.size(), describe(sample_)));
    }
    data = data_of("the batch", batch.inputs, batch.targets);
    require_some_target(*data);
    return options_.world == nullptr
               ? std::string()
               : fmt::format("makes step {} with {}", steps() + 1, data_digest(*data));
  };
  const std::vector<double> rates =
      agree(call, rate ? std::vector<double>{*rate} : std::vector<double>{});
  std::vector<int64_t> order(static_cast<size_t>(data->size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  const uint64_t seed = derive_seed(options_.seed, hash_name("step"), pipeline_.steps());
  const std::vector<StepResult> results = run(*data, order, seed, data->size(), rates, {});
  if (results.empty()) throw RuntimeError("interrupted");
  return results.front();
}

std::vector<StepResult> Session::train(const Dataset& data, const std::vector<int64_t>& order,
                                       int64_t epoch, int64_t batch_size,
                                       const std::function<bool(const StepResult&)>& on_step,
                                       const std::vector<double>& rates, const EpochPart& part) {
  const Busy busy(busy_);
  const auto call = [&] {
    require_whole_steps();
    check(data, batch_size);
    require_some_target(data);
    const int64_t samples = samples_of(part, static_cast<int64_t>(order.size()), batch_size);
    if (!rates.empty() && static_cast<int64_t>(rates.size()) != ceil_div(samples, batch_size)) {
      throw ConfigError(fmt::format("expected a learning rate for each of {} steps, found {}",
                                    ceil_div(samples, batch_size), rates.size()));
    }
    if (options_.world == nullptr) return std::string();
    const std::string_view bytes(reinterpret_cast<const char*>(order.data()),
                                 order.size() * sizeof(order.front()));
    const std::string stretch =
        samples < static_cast<int64_t>(order.size())
            ? fmt::format(", samples {} to {} of it", part.first * batch_size,
                          part.first * batch_size + samples)
            : "";
    return fmt::format(
        "trains epoch {} from step {} on in batches of {} with {}, order CRC {:08x}{}", epoch + 1,
        steps(), batch_size, data_digest(data), crc32_of(bytes), stretch);
  };
  const std::vector<double> first_rates = agree(call, rates);
  if (order.empty()) return {};
  std::exception_ptr failure;
  const auto report = [&](const StepResult& step) {
    try {
      return on_step(step);
    } catch (...) {
      failure = std::current_exception();
      return false;
    }
  };
  std::vector<StepResult> results =
      run(data, order, derive_seed(options_.seed, epoch), batch_size, first_rates,
          on_step ? report : std::function<bool(const StepResult&)>(), part);
  agree([&] {
    if (failure) std::rethrow_exception(failure);
    return fmt::format("ends epoch {} after {} steps", epoch + 1, results.size());
  });
  pipeline_.average_buffers();
  return results;
}

void Session::end_epoch() {
  const Busy busy(busy_);
  agree([&] { return fmt::format("ends an epoch after step {}", steps()); });
}

StepResult Session::evaluate(const Dataset& data, int64_t batch_size) {
  const Busy busy(busy_);
  agree([&] {
    require_whole_steps();
    check(data, batch_size);
    return options_.world == nullptr ? std::string() : "evaluates " + data_digest(data);
  });
  pipeline_.average_buffers();  // the model that snapshot() returns
  const WithMeans means(pipeline_, options_);
  const BatchCut cut(data.size(), batch_size, 1);
  const schedule::Schedule schedule =
      evaluation_schedule(options_.plan, pipeline_.links(), cut.num_micro_batches());
  runtime::RunOptions options = run_options();
  options.credits = check_schedule(schedule);
  const std::vector<int64_t> order = epoch_order(data.size(), 0, 0, /*shuffle=*/false);
  const EpochBatches batches(data, order, 0, cut, options_.seed, Lengths::Batch);
  const runtime::RunResult run = pipeline_.run(schedule, batches, options);
  StepResult sum;
  LossMean loss;
  for (size_t t = 0; t < run.mini_batches.size(); ++t) {
    const runtime::MiniBatchStats& stats = run.mini_batches[t];
    loss.add(stats, batches.mini_batch_targets(MiniBatchId{static_cast<int64_t>(t)}));
    sum.samples += stats.samples;
    sum.correct += stats.correct;
  }
  if (sum.samples < data.size()) throw RuntimeError("interrupted");
  sum.loss = loss.mean();
  sum.targets = loss.targets;
  return sum;
}

at::Tensor Session::predict(const model::Tensors& inputs, int64_t batch_size) {
  const Busy busy(busy_);
  std::shared_ptr<TensorDataset> data;
  agree([&] {
    require_whole_steps();
    if (model_.returns_loss()) {
      throw ConfigError(
          "the model returns its loss, so that its outputs are not known: export it without labels "
          "among its inputs, and give them as targets");
    }
    if (batch_size < 1)
      throw ConfigError(fmt::format("the batch size must be at least 1, found {}", batch_size));
    data = data_of("the data", inputs, {}, /*with_targets=*/false);
    return options_.world == nullptr ? std::string() : "predicts " + data_digest(*data);
  });
  pipeline_.average_buffers();
  const WithMeans means(pipeline_, options_);
  const BatchCut cut(data->size(), batch_size, 1);
  const schedule::Schedule schedule =
      evaluation_schedule(options_.plan, pipeline_.links(), cut.num_micro_batches());
  Predictions predictions;
  runtime::RunOptions options = run_options();
  options.credits = check_schedule(schedule);
  options.loss = predictions.keep();
  const std::vector<int64_t> order = epoch_order(data->size(), 0, 0, /*shuffle=*/false);
  const NumberedBatches batches(*data, order, cut);
  const runtime::RunResult run = pipeline_.run(schedule, batches, options);
  if (std::ssize(run.mini_batches) < cut.num_mini_batches()) throw RuntimeError("interrupted");
  return predictions.of_all(ranks());
}

std::vector<runtime::LayerSnapshot> Session::snapshot() const {
  const Busy busy(busy_);
  agree([&] {
    require_whole_steps();
    return fmt::format("copies the weights of step {}", steps());
  });
  std::vector<runtime::LayerSnapshot> layers = pipeline_.snapshot();
  share_layers(ranks(), layers);
  return layers;
}

void Session::load(const std::vector<runtime::LayerSnapshot>& layers, int64_t steps) {
  const Busy busy(busy_);
  if (pipeline_.has_rounds()) {
    throw ConfigError(
        "under the synchronisation diloco each replica has weights and an optimiser's state of its "
        "own, which weights alone do not say: expected a checkpoint to resume from");
  }
  agree([&] { return fmt::format("takes the weights of step {}", steps); });
  pipeline_.load(layers, steps);
}

std::filesystem::path Session::save(const std::filesystem::path& directory, const Place& place,
                                    const KeptCheckpoints& kept) {
  const Busy busy(busy_);
  agree([&] {
    require_whole_steps();
    return fmt::format("saves step {} to {}", steps(), directory.string());
  });
  pipeline_.average_buffers();
  const bool is_inside = place.inside.steps > 0;
  Checkpoint checkpoint{
      {.model = model_.name(),
       .epoch = place.epochs,
       .next_mini_batch = place.inside.steps,
       .step = steps(),
       .seed = options_.seed,
       .mini_batch_size = is_inside ? place.inside.batch_size : options_.mini_batch_size,
       .train_samples = is_inside ? place.inside.samples : 0,
       .shuffle = is_inside ? place.inside.shuffle : std::nullopt,
       .optimizer = std::string(to_string(options_.optimizer.kind)),
       .classes = place.classes,
       .loader = place.loader,
       .rate = {.schedule_steps = schedule_steps(options_, 0, 0),
                .scale = place.rate_scale,
                .base = place.base_rate,
                .plateau = plateau_},
       .loss_scale = scales_loss(options_.plan.precision) ||
                             pipeline_.loss_scale() != runtime::LossScaleState{}
                         ? std::optional(pipeline_.loss_scale())
                         : std::nullopt,
       .mean = options_.mean.swa_patience ? std::optional(mean_) : std::nullopt},
      {},
      {}};
  for (runtime::LayerSnapshot& layer : pipeline_.snapshot())
    checkpoint.layers.push_back(to_state(std::move(layer), pipeline_.state_names()));
  return save_checkpoint(directory, model_, checkpoint, kept, ranks());
}

Place Session::resume(const std::filesystem::path& directory,
                      const std::vector<std::string>& classes) {
  const Busy busy(busy_);
  Checkpoint checkpoint;
  std::vector<runtime::LayerSnapshot> layers;
  agree([&] {
    checkpoint = load_checkpoint(directory, model_,
                                 [this](LayerId layer) { return pipeline_.holds(layer); });
    if (checkpoint.optimizer != to_string(options_.optimizer.kind)) {
      throw ConfigError(
          fmt::format("the checkpoint was made with optimiser '{}', this run uses '{}'",
                      checkpoint.optimizer, to_string(options_.optimizer.kind)));
    }
    if (checkpoint.next_mini_batch > 0 && checkpoint.lengths != "whole") {
      throw ConfigError(
          fmt::format("the checkpoint was saved after {} steps of an epoch with lengths {}; "
                      "expected one that was saved between epochs",
                      checkpoint.next_mini_batch, printable(checkpoint.lengths)));
    }
    check_same_classes(checkpoint, classes);
    for (const LayerState& state : checkpoint.layers)
      layers.push_back(
          to_snapshot(state, pipeline_.state_names(), to_string(options_.optimizer.kind)));
    return fmt::format("resumes after {} epochs and {} steps", checkpoint.epoch, checkpoint.step);
  });
  pipeline_.load(layers, checkpoint.step);
  if (checkpoint.loss_scale) pipeline_.set_loss_scale(*checkpoint.loss_scale);
  if (plateau_ && checkpoint.rate.plateau) plateau_ = checkpoint.rate.plateau;
  if (plateau_) begin_at(top_rate(options_.learning_rate), *plateau_);
  mean_ = checkpoint.mean.value_or(WeightMeanState{});
  options_.seed = checkpoint.seed;
  return {.epochs = checkpoint.epoch,
          .inside = {.steps = checkpoint.next_mini_batch,
                     .batch_size = checkpoint.mini_batch_size,
                     .samples = checkpoint.train_samples,
                     .shuffle = checkpoint.shuffle},
          .rate_scale = checkpoint.rate.scale,
          .base_rate = checkpoint.rate.base,
          .classes = checkpoint.classes,
          .loader = checkpoint.loader};
}

}  // namespace penstock::train
