#include "penstock/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/ranks.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/checkpoint_writer.h"
#include "penstock/train/checkpoint/layer_states.h"
#include "penstock/train/checkpoint_checks.h"
#include "penstock/train/compensated_optimizer.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/evaluation_record.h"
#include "penstock/train/evaluator.h"
#include "penstock/train/loss_mean.h"
#include "penstock/train/peak_memory.h"
#include "penstock/train/pipeline_options.h"
#include "penstock/train/plateau.h"
#include "penstock/train/rank_results.h"
#include "penstock/train/refused_batch.h"
#include "penstock/train/run_log.h"
#include "penstock/train/segment_progress.h"
#include "penstock/train/step_numbers.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/process/log.h"

namespace penstock::train {

using schedule::Schedule;

namespace {

constexpr size_t kFinalLosses = 50;

double samples_per_second(int64_t samples, int64_t ns) {
  return ns > 0 ? static_cast<double>(samples) * 1e9 / static_cast<double>(ns) : 0;
}

/// Of the steps that were made; empty: none was.
std::optional<double> mean_of_finite(const std::vector<double>& norms) {
  double sum = 0;
  int64_t count = 0;
  for (const double norm : norms) {
    if (!std::isfinite(norm)) continue;
    sum += norm;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

/// One call of train().
class Run {
 public:
  Run(const model::Model& model, const DataSplit& data, const TrainOptions& options)
      : model_(model),
        data_(data),
        options_(options),
        seed_(options.seed),
        planned_(model, options.plan, options.loss),
        optimizers_(model, compensated_optimizer(optimizer_of(options), options.plan.compensation)),
        pipeline_(planned_.model(), planned_.stage_of_layer(), planned_.replicas(),
                  optimizers_.general(), pipeline_options(planned_, options, optimizers_)),
        evaluator_(model, data, options, pipeline_),
        saves_to_(options.resume ? folder_of_checkpoints(options.checkpoint) : options.checkpoint),
        mini_batches_per_epoch_(mini_batches_per_epoch(data.train->size(), options)),
        plateau_(plateau_of(options.learning_rate.schedule, metric())),
        record_(metric()) {
    if (plateau_) rate_.plateau = PlateauState{.rate = first_rate(), .first = first_rate()};
  }

  TrainResult run();

 private:
  Schedule schedule_of(int64_t samples) const {
    return training_schedule(options_.plan, pipeline_.links(), samples, options_.mini_batch_size,
                             has_norm());
  }
  double accuracy(int64_t correct, int64_t targets) const {
    return accuracy_of(correct, targets, evaluator_.counts_correct());
  }
  /// Gradients of weights that stages share are summed where the norm is computed, so the norm is
  /// known then, too.
  bool has_norm() const { return wants_norm(options_) || pipeline_.needs_norm(); }
  double rate(int64_t step) const {
    const double planned =
        rate_.scale * learning_rate(options_.learning_rate, step, rate_.schedule_steps);
    return plateau_ ? on_plateau(planned, *rate_.plateau) : planned;
  }
  /// Where a schedule that follows evaluations begins.
  double first_rate() const { return top_rate(options_.learning_rate); }
  Metric metric() const { return options_.metric.value_or(Metric::Loss); }
  /// What evaluations change: the learning rate, or when a mean of the weights begins.
  bool learns_from_evaluations() const { return plateau_ || options_.mean.swa_patience; }
  /// However often the run is interrupted.
  bool evaluation_is_due() const {
    const bool within = evaluates_within_epochs() && pipeline_.steps() % options_.eval_every == 0;
    return options_.evaluate && pipeline_.steps() > 0 && (next_mini_batch_ == 0 || within);
  }
  bool stopped() const {
    return result_.interrupted || result_.reached_target || pipeline_.steps() >= total_steps_;
  }
  void resume();
  void load_carried(const Checkpoint& checkpoint);
  BatchCut cut_of_step() const {
    return {options_.mini_batch_size, options_.mini_batch_size, options_.plan.micro_batches};
  }
  void count_steps();
  runtime::Ranks ranks() const { return {.world = options_.world, .deadline = options_.deadline}; }
  void finish_result();
  void run_epoch();
  /// Runs mini-batches [next_mini_batch_, next_mini_batch_ + count) of the epoch.
  void run_segment(const std::vector<int64_t>& order, int64_t count, bool measured,
                   EpochSummary& summary);
  void note_tensor_peaks();
  void check_losses(const runtime::RunResult& run) const;
  /// Returns the samples of the run.
  int64_t account(const runtime::RunResult& run, bool measured, EpochSummary& summary);
  void keep_measured(runtime::RunResult run, const Schedule& schedule, int64_t samples);
  /// Trains to the end of the epoch, first the steps that do not count, with evaluations between.
  void run_rest_of_epoch(const std::vector<int64_t>& order, EpochSummary& summary);
  bool evaluates_within_epochs() const { return options_.evaluate && options_.eval_every > 0; }
  int64_t steps_left_in_epoch() const {
    return std::min(mini_batches_per_epoch_ - next_mini_batch_, total_steps_ - pipeline_.steps());
  }
  /// On the test set, unless that was done after this very step. False: there is none, or the run
  /// was stopped.
  bool evaluate();
  void note(const Evaluation& evaluation);
  /// The log and the evaluations of the run before, after resume().
  void begin_record();
  /// What stays of the last evaluation: in the record, in the log, as the best checkpoint.
  void record_evaluation();
  bool saves_within_epochs() const { return writer_ && options_.save_every > 0; }
  /// Steps until the next evaluation or checkpoint within the epoch.
  int64_t steps_until_pause(int64_t most) const;
  /// The value of an evaluation changes what comes, where one is due.
  void learn_from(double value);
  /// Begins to save, after the save before has ended.
  void save();
  void finish_saving();

  const model::Model& model_;
  const DataSplit& data_;
  const TrainOptions& options_;
  uint64_t seed_;
  PlannedModel planned_;
  model::ParameterOptimizers optimizers_;
  runtime::Pipeline pipeline_;
  Evaluator evaluator_;
  std::filesystem::path saves_to_;  ///< the folder of checkpoints; empty: none
  int64_t mini_batches_per_epoch_;
  std::optional<PlateauSpec> plateau_;
  WeightMeanState mean_;
  int64_t total_steps_ = 0;  ///< when the run will end, counted from the very first run
  SavedRate rate_;
  int64_t epoch_ = 0;
  int64_t next_mini_batch_ = 0;
  int64_t warmup_left_ = 0;
  int64_t epoch_correct_ = 0;
  int64_t epoch_targets_ = 0;
  int64_t epoch_samples_ = 0;
  int64_t trained_ns_ = 0;       ///< of this run, measured or not
  int64_t trained_samples_ = 0;  ///< as trained_ns_
  int64_t measured_ns_ = 0;
  int64_t measured_samples_ = 0;
  double idle_ns_ = 0;
  double worker_ns_ = 0;
  TrainResult result_;
  EvaluationRecord record_;
  std::optional<RunLog> log_;               ///< on rank 0
  int64_t saved_at_ = -1;                   ///< the step of the last checkpoint of this run
  std::optional<CheckpointWriter> writer_;  ///< where checkpoints are saved
};

void Run::resume() {
  if (!has_checkpoint(options_.checkpoint)) return;
  const Checkpoint checkpoint = load_checkpoint(
      options_.checkpoint, model_, [this](LayerId layer) { return pipeline_.holds(layer); });
  if (checkpoint.optimizer != to_string(options_.optimizer.kind)) {
    throw ConfigError(fmt::format("the checkpoint was made with optimiser '{}', this run uses '{}'",
                                  checkpoint.optimizer, to_string(options_.optimizer.kind)));
  }
  if (checkpoint.next_mini_batch > 0) check_inside_epoch(checkpoint, options_, data_.train->size());
  check_same_classes(checkpoint, data_.classes);
  check_same_position(checkpoint, ranks());
  std::vector<runtime::LayerSnapshot> layers;
  for (const LayerState& state : checkpoint.layers)
    layers.push_back(
        to_snapshot(state, pipeline_.state_names(), to_string(options_.optimizer.kind)));
  pipeline_.load(layers, checkpoint.step);
  if (options_.carry_state && checkpoint.next_mini_batch > 0) load_carried(checkpoint);
  if (checkpoint.loss_scale) pipeline_.set_loss_scale(*checkpoint.loss_scale);
  const std::optional<PlateauState> fresh = rate_.plateau;
  rate_ = checkpoint.rate;
  rate_.base.reset();  // the options' counts here
  if (!plateau_ || !rate_.plateau) rate_.plateau = fresh;
  if (plateau_) begin_at(first_rate(), *rate_.plateau);
  mean_ = checkpoint.mean.value_or(WeightMeanState{});
  epoch_ = checkpoint.epoch;
  next_mini_batch_ = checkpoint.next_mini_batch;
  log_info(fmt::format("resumed after {} steps (epoch {}, mini-batch {}){}", checkpoint.step,
                       epoch_ + 1, next_mini_batch_,
                       checkpoint.seed != seed_
                           ? fmt::format(", with the checkpoint's seed {}", checkpoint.seed)
                           : ""));
  if (rate_.scale != 1)
    log_info(fmt::format("its learning rates are multiplied by {}, as before", rate_.scale));
  seed_ = checkpoint.seed;
}

void Run::load_carried(const Checkpoint& checkpoint) {
  std::vector<model::Tensors> layers;
  for (const LayerState& state : checkpoint.layers) layers.push_back(state.carried);
  const BatchCut cut = cut_of_step();
  std::vector<int64_t> samples;
  for (int64_t b = 0; b < cut.micro_batches; ++b) {
    const BatchCut::Range range = cut.range(MicroBatchId{b});
    samples.push_back(range.end - range.begin);
  }
  pipeline_.load_carried(layers, samples);
}

void Run::count_steps() {
  const int64_t left = std::max<int64_t>(
      0, saturating_mul(options_.epochs - epoch_, mini_batches_per_epoch_) - next_mini_batch_);
  total_steps_ = saturating_add(pipeline_.steps(), left);
  if (options_.max_steps > 0) total_steps_ = std::min(total_steps_, options_.max_steps);
  rate_.schedule_steps = schedule_steps(options_, rate_.schedule_steps, total_steps_);
}

void Run::save() {
  if (!writer_) return;
  Checkpoint checkpoint{
      {.model = model_.name(),
       .epoch = epoch_,
       .next_mini_batch = next_mini_batch_,
       .step = pipeline_.steps(),
       .seed = seed_,
       .mini_batch_size = options_.mini_batch_size,
       .train_samples = data_.train->size(),
       .shuffle = options_.shuffle,
       .lengths = lengths_name(options_),
       .optimizer = std::string(to_string(options_.optimizer.kind)),
       .plan_request = options_.plan_request,
       .settings = options_.settings,
       .classes = data_.classes,
       .rate = rate_,
       .loss_scale = scales_loss(options_.plan.precision) ||
                             pipeline_.loss_scale() != runtime::LossScaleState{}
                         ? std::optional(pipeline_.loss_scale())
                         : std::nullopt,
       .mean = options_.mean.swa_patience ? std::optional(mean_) : std::nullopt},
      {},
      options_.plan_request.empty() ? std::string() : plan::to_json(options_.plan)};
  for (runtime::LayerSnapshot& layer : pipeline_.snapshot())
    checkpoint.layers.push_back(to_state(std::move(layer), pipeline_.state_names()));
  if (options_.carry_state && next_mini_batch_ > 0) {
    std::vector<model::Tensors> carried = pipeline_.carried(cut_of_step().micro_batches);
    for (size_t l = 0; l < carried.size(); ++l)
      checkpoint.layers[l].carried = std::move(carried[l]);
  }
  check_finite(checkpoint, model_, ranks());
  finish_saving();
  writer_->save(checkpoint);
  saved_at_ = pipeline_.steps();
}

void Run::finish_saving() {
  if (!writer_) return;
  const std::optional<std::filesystem::path> folder = writer_->finish();
  if (folder && ranks().is_first()) log_info("checkpoint: " + folder->string());
}

TrainResult Run::run() {
  warmup_left_ = options_.warmup_steps;
  if (const auto kinds = pipeline_.kinds_in_float32(); !kinds.empty() && ranks().is_first()) {
    log_info(fmt::format("{} is not there for layers of the kind {} here: they compute in float32",
                         to_string(options_.plan.precision), fmt::join(kinds, ", ")));
  }
  // better now than after the first epoch
  if (!options_.checkpoint.empty()) {
    runtime::together(ranks(), [&]() -> std::string {
      if (ranks().is_first()) make_checkpoint_directory(saves_to_);
      return "";
    });
    writer_.emplace(saves_to_, model_, static_cast<int>(options_.keep_last), ranks());
  }
  if (options_.resume) resume();
  begin_record();
  count_steps();
  // A stop came between the step and its evaluation.
  if (learns_from_evaluations() && evaluation_is_due() && rate_.evaluated_at != pipeline_.steps())
    evaluate();
  while (epoch_ < options_.epochs && !stopped()) run_epoch();
  finish_saving();
  if (ranks().is_first()) {
    for (const std::string& obstacle : pipeline_.graph_obstacles())
      log_info(fmt::format("without CUDA graphs: {}", obstacle));
  }
  finish_result();
  return std::move(result_);
}

void Run::finish_result() {
  // A finished run that is resumed has nothing to train, but still reports its results.
  if (result_.epochs.empty() && options_.evaluate && !result_.interrupted) {
    if (evaluate()) {
      result_.test_loss = result_.evaluations.back().loss;
      result_.test_accuracy = result_.evaluations.back().accuracy;
    }
  }
  result_.throughput_samples_per_s = samples_per_second(measured_samples_, measured_ns_);
  result_.idle_share = worker_ns_ > 0 ? idle_ns_ / worker_ns_ : 0;
  result_.steps = pipeline_.steps();
  if (scales_loss(options_.plan.precision)) {
    result_.skipped_steps = pipeline_.loss_scale().skipped;
    result_.loss_scale = pipeline_.loss_scale().scale;
  }
  if (options_.keep_weights) {
    for (runtime::LayerSnapshot& layer : pipeline_.snapshot())
      result_.weights.push_back(std::move(layer.weights));
  }
  const size_t last = std::min(kFinalLosses, result_.losses.size());
  if (last > 0)
    result_.final_loss = std::accumulate(result_.losses.end() - static_cast<std::ptrdiff_t>(last),
                                         result_.losses.end(), 0.0) /
                         static_cast<double>(last);
  result_.final_loss_steps = static_cast<int64_t>(last);
  if (options_.world != nullptr) collect_on_first(ranks(), result_);
}

void Run::run_epoch() {
  const std::vector<int64_t> order =
      training_order(*data_.train, order_of_epoch(options_, seed_, epoch_));
  if (next_mini_batch_ == 0) pipeline_.forget_carried();
  EpochSummary summary;
  summary.epoch = epoch_;
  const size_t steps_before = result_.losses.size();
  epoch_correct_ = 0;
  epoch_targets_ = 0;
  epoch_samples_ = 0;
  run_rest_of_epoch(order, summary);

  const auto epoch_steps = static_cast<std::ptrdiff_t>(result_.losses.size() - steps_before);
  if (has_norm() && epoch_steps > 0) {
    summary.grad_norm =
        mean_of_finite({result_.grad_norms.end() - epoch_steps, result_.grad_norms.end()});
  }
  if (epoch_samples_ > 0) {
    summary.loss /= static_cast<double>(std::max<int64_t>(epoch_targets_, 1));
    summary.train_accuracy = accuracy(epoch_correct_, epoch_targets_);
    summary.samples_per_s = samples_per_second(epoch_samples_, summary.train_ns);
  }
  summary.is_whole = next_mini_batch_ == mini_batches_per_epoch_;
  if (summary.is_whole) {
    ++epoch_;
    next_mini_batch_ = 0;
  }
  pipeline_.average_buffers();
  // What the evaluation changes belongs to the checkpoint.
  if (learns_from_evaluations() && options_.evaluate && !result_.interrupted) evaluate();
  if (saved_at_ != pipeline_.steps()) save();
  if (options_.evaluate && !result_.interrupted && evaluate()) {
    summary.test_loss = result_.evaluations.back().loss;
    summary.test_accuracy = result_.evaluations.back().accuracy;
  }
  result_.epochs.push_back(summary);
  if (summary.test_loss) {
    result_.test_loss = summary.test_loss;
    result_.test_accuracy = summary.test_accuracy;
  }
  if (options_.observer != nullptr) options_.observer->on_epoch(summary);
}

void Run::run_rest_of_epoch(const std::vector<int64_t>& order, EpochSummary& summary) {
  while (!stopped() && steps_left_in_epoch() > 0) {
    int64_t count = steps_left_in_epoch();
    count = steps_until_pause(count);
    const bool measured = warmup_left_ == 0;
    if (!measured) count = std::min(count, warmup_left_);
    run_segment(order, count, measured, summary);
    if (!measured) warmup_left_ -= count;
    const bool is_due = evaluates_within_epochs() && pipeline_.steps() % options_.eval_every == 0;
    if (result_.interrupted || steps_left_in_epoch() == 0) continue;
    const bool saves = saves_within_epochs() && pipeline_.steps() % options_.save_every == 0;
    if (!is_due && !saves) continue;
    pipeline_.average_buffers();
    const bool learns = is_due && learns_from_evaluations();  // its checkpoint has what it changes
    if (saves && !learns) save();
    if (!is_due) continue;
    const bool is_made = evaluate();
    if (saves && learns && is_made && saved_at_ != pipeline_.steps()) save();
    if (is_made && options_.observer != nullptr)
      options_.observer->on_evaluation(result_.evaluations.back());
  }
}

void Run::run_segment(const std::vector<int64_t>& order, int64_t count, bool measured,
                      EpochSummary& summary) {
  const int64_t first = next_mini_batch_ * options_.mini_batch_size;
  const int64_t samples = std::min(count * options_.mini_batch_size, data_.train->size() - first);
  const BatchCut cut(samples, options_.mini_batch_size, options_.plan.micro_batches);
  const Schedule schedule = schedule_of(samples);
  runtime::RunOptions run_options = run_options_for(schedule, options_);
  if (options_.carry_state) run_options.carried_places = cut.micro_batches;
  run_options.fade_steps = fade_steps(rate_.schedule_steps);
  run_options.learning_rate = [this](int64_t step) { return rate(step); };
  run_options.momentum = [this](int64_t step) {
    return step_momentum(options_, step, rate_.schedule_steps);
  };
  run_options.average_share = [this](int64_t step) {
    return average_share(options_.mean, mean_, step);
  };
  if (std::isfinite(options_.max_grad_norm)) run_options.max_grad_norm = options_.max_grad_norm;
  const EpochBatches batches(*data_.train, order, first, cut, derive_seed(seed_, epoch_),
                             options_.lengths);
  const int64_t first_step = pipeline_.steps();
  const std::unique_ptr<PrefetchedBatches> ahead =
      made_ahead(*data_.train, batches, schedule, pipeline_, options_);
  SegmentProgress progress(
      options_,
      {.epoch = epoch_,
       .epochs = options_.epochs,
       .mini_batch = next_mini_batch_,
       .mini_batches =
           std::min(mini_batches_per_epoch_, next_mini_batch_ + total_steps_ - pipeline_.steps()),
       .step = pipeline_.steps()},
      epoch_correct_, epoch_targets_);
  progress.watch(run_options);
  run_options.on_mini_batch = [&](MiniBatchId id, const runtime::MiniBatchStats& stats) {
    const int64_t targets = batches.mini_batch_targets(id);
    progress.add(stats, targets, evaluator_.counts_correct());
    if (log_) {
      log_->step({.step = first_step + id.value + 1,
                  .epoch = epoch_ + 1,
                  .loss = stats.mean_loss(),
                  .accuracy = evaluator_.counts_correct()
                                  ? std::optional(accuracy(stats.correct, targets))
                                  : std::nullopt,
                  .learning_rate = rate(first_step + id.value),
                  .grad_norm = has_norm() ? std::optional(stats.gradient_norm) : std::nullopt,
                  .samples_per_s = progress.samples_per_s()});
    }
    // A disk that is full is reported now, not after the next epoch.
    return std::isfinite(stats.loss_sum) && !(writer_ && writer_->has_failed());
  };
  reset_peak_memory();
  model::reset_tensor_memory_peak();
  for (const at::Device device : pipeline_.gpus()) model::installed_devices().reset_peak(device);
  runtime::RunResult run = pipeline_.run(schedule, source_of(ahead, batches), run_options);
  check_losses(run);
  result_.peak_memory_bytes = std::max(result_.peak_memory_bytes, peak_memory_bytes());
  note_tensor_peaks();
  LossMean loss;
  for (size_t t = 0; t < run.mini_batches.size(); ++t) {
    loss.add(run.mini_batches[t], batches.mini_batch_targets(MiniBatchId{static_cast<int64_t>(t)}));
  }
  summary.loss += loss.sum;
  epoch_targets_ += loss.targets;
  const auto finished = static_cast<int64_t>(run.mini_batches.size());
  next_mini_batch_ += finished;
  result_.interrupted = finished < cut.num_mini_batches();
  const int64_t finished_samples = account(run, measured, summary);
  if (measured && finished_samples > 0) keep_measured(std::move(run), schedule, finished_samples);
}

/// What every rank knows, so that all of them throw.
void Run::check_losses(const runtime::RunResult& run) const {
  if (std::all_of(run.mini_batches.begin(), run.mini_batches.end(),
                  [](const auto& stats) { return std::isfinite(stats.loss_sum); }))
    return;
  // No failure that a restart may mend: it would end at the same step.
  throw NoAnswer(fmt::format(
      "the loss is no longer finite (step {}); a smaller learning rate, or a warm-up of it, "
      "may help{}{}{}",
      pipeline_.steps(), advice_on_rounds(options_.plan), advice_on_float16(options_.plan),
      advice_on_own_loss(model_, options_)));
}

void Run::keep_measured(runtime::RunResult run, const Schedule& schedule, int64_t samples) {
  const bool longest =
      result_.segments.empty() ||
      samples > *std::max_element(result_.segments.begin(), result_.segments.end());
  result_.segments.push_back(samples);
  if (!longest) return;
  result_.timeline = std::move(run.timeline);
  result_.schedule = result_.interrupted ? schedule_of(samples) : schedule;
  result_.peak_versions = std::move(run.peak_versions);
}

void Run::note_tensor_peaks() {
  const int64_t counted = model::tensor_memory().peak;
  const ProcessMemory process = model::process_memory_peak();
  if (process.resident > result_.memory.resident) result_.memory = process;
  result_.worker_memory.resize(static_cast<size_t>(options_.plan.num_workers()));
  for (size_t w = 0; w < result_.worker_memory.size(); ++w) {
    MemoryBytes& highest = result_.worker_memory[w];
    const MemoryBytes found = model::tensor_memory_peak(WorkerId{static_cast<int32_t>(w)});
    if (found.sum() > highest.sum()) highest = found;
  }
  if (counted > 0)
    result_.peak_tensor_bytes = std::max(result_.peak_tensor_bytes, counted - data_.tensor_bytes);
  const std::vector<at::Device> gpus = pipeline_.gpus();
  for (size_t d = 0; d < gpus.size(); ++d) {
    if (d == result_.devices.size())
      result_.devices.push_back(
          {.device = gpus[d].str(), .name = model::installed_devices().name(gpus[d])});
    int64_t& peak = result_.devices[d].peak_memory_bytes;
    peak = std::max(peak, model::installed_devices().memory(gpus[d]).peak);
  }
}

int64_t Run::account(const runtime::RunResult& run, bool measured, EpochSummary& summary) {
  int64_t samples = 0;
  int64_t step = pipeline_.steps() - static_cast<int64_t>(run.mini_batches.size());
  for (const auto& stats : run.mini_batches) {
    result_.losses.push_back(stats.mean_loss());
    result_.learning_rates.push_back(rate(step++));
    if (has_norm()) result_.grad_norms.push_back(stats.gradient_norm);
    epoch_correct_ += stats.correct;
    samples += stats.samples;
  }
  epoch_samples_ += samples;
  summary.train_ns += run.wall_ns;
  trained_ns_ += run.wall_ns;
  trained_samples_ += samples;
  if (!measured) return samples;
  measured_ns_ += run.wall_ns;
  measured_samples_ += samples;
  const auto workers = static_cast<double>(run.timeline.active_workers());
  const auto makespan = static_cast<double>(run.timeline.makespan_ns());
  // This rank's workers may have begun late and ended early: the others' time counts, too.
  const double span =
      options_.world == nullptr ? makespan : std::max(makespan, static_cast<double>(run.wall_ns));
  idle_ns_ += workers * (span - (1 - run.timeline.idle_share()) * makespan);
  worker_ns_ += workers * span;
  return samples;
}

bool Run::evaluate() {
  if (!result_.evaluations.empty() && result_.evaluations.back().step == pipeline_.steps())
    return true;
  if (data_.test->size() == 0) return false;
  std::optional<Evaluation> made = evaluator_.evaluate(seed_);
  result_.interrupted = result_.interrupted || !made;
  if (!made) return false;
  made->samples = trained_samples_;
  made->train_ns = trained_ns_;
  note(*made);
  return true;
}

void Run::learn_from(double value) {
  if (!learns_from_evaluations() || !evaluation_is_due()) return;
  rate_.evaluated_at = pipeline_.steps();
  if (plateau_) observe(*plateau_, value, *rate_.plateau);
  const bool has_begun = mean_.began.has_value();
  observe(options_.mean, metric(), value, pipeline_.steps(), mean_);
  if (mean_.began && !has_begun && ranks().is_first())
    log_info(fmt::format("the mean of the weights begins after step {}", pipeline_.steps()));
}

void Run::note(const Evaluation& evaluation) {
  const Metric metric = this->metric();
  const double value = evaluation.of(metric);
  learn_from(value);
  // A value that is no number is neither better nor reached.
  const bool is_best =
      !std::isnan(value) &&
      (!result_.best || !reaches(metric, result_.evaluations[*result_.best].of(metric), value));
  if (is_best) result_.best = result_.evaluations.size();
  result_.evaluations.push_back(evaluation);
  record_evaluation();
  result_.reached_target = options_.target && reaches(metric, value, *options_.target);
}

void Run::begin_record() {
  if (writer_ && options_.resume) record_.read(saves_to_, pipeline_.steps(), ranks());
  if (const auto kept = record_.kept_step(); writer_ && options_.keep_best && kept) {
    writer_->keep_best(*kept);
    if (ranks().is_first()) mark_best(saves_to_, *kept);  // of a run that did not
  }
  runtime::together(ranks(), [&]() -> std::string {
    if (ranks().is_first() && !options_.log_folder.empty())
      log_.emplace(options_.log_folder, pipeline_.steps());
    return "";
  });
}

void Run::record_evaluation() {
  const Evaluation& evaluation = result_.evaluations.back();
  if (record_.all().empty() || record_.all().back().step < evaluation.step) record_.add(evaluation);
  if (log_) log_->evaluation(evaluation);
  if (!writer_) return;
  const bool is_best = options_.keep_best && record_.keep(evaluation);
  if (is_best) {
    writer_->keep_best(evaluation.step);
    if (saved_at_ != evaluation.step) save();
    finish_saving();
  }
  if (!ranks().is_first()) return;
  if (is_best) mark_best(saves_to_, evaluation.step);
  record_.write(saves_to_);
}

int64_t Run::steps_until_pause(int64_t most) const {
  int64_t count = most;
  for (const int64_t every : {evaluates_within_epochs() ? options_.eval_every : 0,
                              saves_within_epochs() ? options_.save_every : 0}) {
    if (every > 0) count = std::min(count, every - pipeline_.steps() % every);
  }
  return count;
}

}  // namespace

TrainResult train(const model::Model& model, const DataSplit& data, const TrainOptions& options) {
  check_trainable(model, data, options);
  if (const auto refused = refused_batch(model, options, data.train->size()))
    throw ConfigError(explain(*refused, "drop_last"));
  return Run(model, data, options).run();
}

}  // namespace penstock::train
