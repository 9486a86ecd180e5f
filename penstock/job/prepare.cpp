#include "penstock/job/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "penstock/imported/import_model.h"
#include "penstock/job/begin_run.h"
#include "penstock/job/chosen_model.h"
#include "penstock/job/compiled_run.h"
#include "penstock/job/run_data.h"
#include "penstock/job/run_plan.h"
#include "penstock/job/run_warnings.h"
#include "penstock/job/thread_memory.h"
#include "penstock/job/worker_devices.h"
#include "penstock/launch/job_environment.h"
#include "penstock/model/input_spec.h"
#include "penstock/options/rows.h"
#include "penstock/plan/boundaries.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint_checks.h"
#include "penstock/train/data/data_digest.h"
#include "penstock/train/data/lengths.h"
#include "penstock/train/data/some_target.h"
#include "penstock/train/refused_batch.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/busy_others.h"
#include "penstock/util/text/plural.h"

namespace penstock::job {

namespace {

/// The layers, their shapes and weights, as one line.
std::string model_digest(const model::Model& model) {
  std::string all;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const LayerId id{l};
    all += model.graph().layer(id).name;
    for (const model::Shape& shape : model.output_shapes(id))
      all += fmt::format(" {}", fmt::join(shape, "x"));
    all += '\n';
  }
  return fmt::format("{}, {} layers, CRC {:08x}", model.name(), model.graph().num_layers(),
                     crc32_of(all));
}

/// How often the launcher has started the job again, which may have this one rank only.
int restarts_of(const Job* job) {
  if (job != nullptr) return job->restart();
  const auto own = launch::own_job();
  return own ? own->restart : 0;
}

/// A GPU waits for its inputs sooner than it is kept waiting by the threads that gather them.
int data_threads_of(const options::TrainRequest& request,
                    const std::vector<cluster::DeviceName>& devices, int usual) {
  const bool on_gpu = std::any_of(devices.begin(), devices.end(),
                                  [](const auto& device) { return !device.is_cpu(); });
  if (request.data.threads || !on_gpu) return usual;
  constexpr int kMost = 4;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, kMost);
}

/// Every option of a run but where its data lie, and how each rank is watched, which may differ
/// from machine to machine.
std::vector<std::pair<std::string, std::string>> comparable(const options::TrainRequest& request) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const options::Row& row : options::train_rows()) {
    if (row.name == "--data-folder" || row.section == options::Section::File ||
        row.section == options::Section::Operation)
      continue;
    values.emplace_back(row.name, options::text_of(row, request));
  }
  return values;
}

/// Of the whole training.
int64_t steps_of(const train::TrainOptions& options, int64_t samples) {
  const int64_t all =
      saturating_mul(options.epochs, train::mini_batches_per_epoch(samples, options));
  return options.max_steps > 0 ? std::min(all, options.max_steps) : all;
}

/// Makes a PreparedRun, part by part.
class Preparation {
 public:
  Preparation(const options::TrainRequest& request, Job* job, const PrepareOptions& options)
      : options_(options), listener_(options.listener), asked_(comparable(request)) {
    if (job != nullptr && !job->is_first()) listener_ = {};  // what all do, rank 0 tells
    load(request, job);
    if (!run_->data.summary.empty()) listener_.tell(run_->data.summary);
    if (const auto& adapters = run_->model.adapters()) {
      listener_.tell(fmt::format("adapters of rank {} beside {}: {} numbers are trained\n",
                                 adapters->rank, plural(std::ssize(adapters->modules), "module"),
                                 run_->model.parameter_count()));
    }
    if (run_->request.run.compile) check_can_compile(run_->model, run_->request);
    choose_rate(run_->request);
    run_->large_batch = set_large_batch(run_->request, run_->model, run_->data.train->size());
    for (const LargeBatchNote& note : run_->large_batch)
      listener_.tell(fmt::format("large batch, {}: {}\n", note.rule, note.text));
    run_->job = job;
    run_->record.asked = request;
    run_->record.given = options_.given;
    run_->train = options::train_options_of(run_->request);
    run_->train.stop = options_.stop;
    run_->train.data_threads =
        data_threads_of(run_->request, options_.devices, run_->train.data_threads);
  }

  PreparedRun run() {
    if (run_->job != nullptr) check_ranks(*run_->job);
    // A job that the launcher has started again continues.
    if (restarts_of(run_->job) > 0 && !run_->request.run.checkpoint.empty())
      run_->train.resume = run_->request.run.resume = true;
    train::check_before_plan(run_->model, run_->data, run_->train);
    check_batches_before_plan();
    run_->is_finished = begin();
    set_plan();
    set_world();
    check_batches(run_->train);
    train::check_trainable(run_->model, run_->data, run_->train);
    warn(warning_of_model(), !run_->is_finished);
    warn(mean_warning(run_->train, run_->model), will_train());
    require_memory_for_threads(own_threads());
    warn(offload_warning(run_->train.plan, options_.devices), will_train());
    warn(precision_warning(run_->train.plan, options_.devices), will_train());
    compile();
    record();
    return std::move(*run_);
  }

 private:
  /// In a job rank 0 looks for all, at a model of its own: what that reads of the file goes with
  /// it, so that each rank has only what its stages need.
  std::string warning_of_model() const {
    const auto of = [this](const model::Model& model) {
      return model_warning(run_->request, model, run_->train.plan);
    };
    if (run_->job == nullptr || !imported::is_program_file(run_->request.model.name))
      return of(run_->model);
    return run_->job->from_first([&] { return of(chosen_model(run_->request.model)); });
  }

  /// The model and the data; when a rank has neither, all throw.
  void load(const options::TrainRequest& request, Job* job) {
    const auto make = [&]() -> std::string {
      model::Model model =
          model_for_data(request.model, request.data.name.value_or(options::kUsualData));
      options::TrainRequest completed = request;
      completed.loss = model::loss_for(model, request.loss);
      train::DataSplit data = data_for(model, completed);
      train::require_some_target(*data.train);
      run_.emplace(PreparedRun{.request = std::move(completed),
                               .record = RunRecord(),
                               .model = std::move(model),
                               .data = std::move(data),
                               .world = nullptr,
                               .lock = nullptr,
                               .output_locks = {},
                               .train = {},
                               .large_batch = {},
                               .warnings = {}});
      return "";
    };
    if (job == nullptr)
      make();
    else
      job->together(make);
  }

  void choose_rate(options::TrainRequest& request) const {
    const auto& given = options_.given;
    const bool is_chosen = request.rates.base != train::LearningRateSpec{}.base ||
                           std::find(given.begin(), given.end(), "--lr") != given.end();
    if (!is_chosen && request.data.name == options::kMadeData)
      request.rates.base = options::kMadeDataRate;
  }

  void check_ranks(Job& job) {
    check_same_options(job, asked_);
    job.check_same("model", model_digest(run_->model));
    job.check_same("data", train::data_digest(run_->data));
    job.check_same("number of servers", fmt::to_string(job.servers()));
    std::optional<int64_t>& workers = run_->request.plan.workers;
    if (!workers) workers = job.ranks() - job.servers();
  }

  /// Whether nothing is left to train: rank 0 looks, and all ranks know or throw. If something is,
  /// it takes the folder of the checkpoints and the files of the results for this run.
  bool begin() {
    // The rank of a job that has failed may still be ending.
    const std::chrono::seconds patience(restarts_of(run_->job) > 0 ? 10 : 0);
    const auto look = [&]() -> std::string {
      if (begin_run(run_->request.run, run_->model, run_->data.classes, listener_) ==
          Begin::Finished)
        return "finished";
      const std::string& folder = run_->request.run.checkpoint;
      if (!folder.empty()) {
        run_->lock =
            std::make_unique<train::RunLock>(train::folder_of_checkpoints(folder), patience);
      }
      claim_run_folder(run_->request, restarts_of(run_->job) > 0);
      const options::OutputRequest& output = run_->request.output;
      const std::string results =
          run_->request.operation.folder.empty() ? "" : in_run_folder(run_->request, kResultsFile);
      for (const std::string& file : {output.history, output.html, output.trace, results}) {
        if (!file.empty())
          run_->output_locks.push_back(std::make_unique<OutputLock>(file, patience));
      }
      return "";
    };
    return (run_->job == nullptr ? look() : run_->job->from_first(look)) == "finished";
  }

  /// Throws ConfigError where the model cannot train on one of the micro-batches.
  void check_batches(const train::TrainOptions& train) const {
    if (run_->is_finished) return;
    if (const auto refused = train::refused_batch(run_->model, train, run_->data.train->size()))
      throw ConfigError(explain(*refused, "--drop-last"));
  }

  /// The same before anything is measured or written, with what is known then.
  void check_batches_before_plan() const {
    const options::PlanSection& plan = run_->request.plan;
    if (!plan.file.empty() || run_->train.resume) return;
    train::TrainOptions known = run_->train;
    if (known.mini_batch_size < 1) return;
    known.plan.micro_batches = std::max<int64_t>(plan.micro_batches.value_or(1), 1);
    check_batches(known);
  }

  void compile() {
    if (!run_->request.run.compile || run_->is_finished) return;
    options::TrainRequest request = run_->request;
    request.run.batch_size = run_->train.mini_batch_size;
    run_->model = compiled_for(run_->model, run_->train.plan, request,
                               {.stop = options_.stop, .listener = listener_, .job = run_->job});
  }

  /// What is known before the first step, in the folder of the run.
  void record() {
    if (!will_train()) return;
    const auto write = [&]() -> std::string {
      RunRecord& record = run_->record;
      record.model = model_digest(run_->model);
      record.data = run_->train.settings.at("--data");
      record.ranks = run_->job == nullptr ? 1 : run_->job->ranks();
      record.mini_batch_size = run_->train.mini_batch_size;
      write_run_folder(record, run_->train.plan);
      return "";
    };
    if (run_->job == nullptr)
      write();
    else
      run_->job->from_first(write);
  }

  /// How long the learning rate's schedule will be, also where it goes on.
  int64_t schedule_length(int64_t run_steps) const {
    const std::string& folder = run_->request.run.checkpoint;
    const bool goes_on = run_->train.resume && train::has_checkpoint(folder);
    const int64_t saved =
        goes_on ? train::newest_position(folder, run_->model).rate.schedule_steps : 0;
    return train::schedule_steps(run_->train, saved, run_steps);
  }

  /// Of the first epoch. Tells where most places hold padding, which the user may spare.
  std::vector<profile::LengthGroup> lengths() const {
    const train::TrainOptions& train = run_->train;
    const train::Dataset& data = *run_->data.train;
    if (train.lengths != train::Lengths::Whole) {
      std::vector<profile::LengthGroup> found =
          lengths_for(run_->model, data, train::order_of_epoch(train, train.seed, 0));
      if (found.empty()) {
        listener_.tell(
            fmt::format("note: all samples of {} have one length: --lengths changes "
                        "nothing\n",
                        data.name()));
      }
      return found;
    }
    constexpr double kMostlyPadding = 0.7;
    const double filled = train::filled_share(data);
    if (filled < kMostlyPadding && train::why_not_shorter(run_->model, data).empty()) {
      listener_.tell(
          fmt::format("note: {:.0f} % of the samples' places hold padding; --lengths bucketed pads "
                      "less\n",
                      100 * (1 - filled)));
    }
    return {};
  }

  void set_plan() {
    train::TrainOptions& train = run_->train;
    options::TrainRequest& request = run_->request;
    const RunPlanner planner{
        .request = request,
        .model = run_->model,
        .job = run_->job,
        .devices = options_.devices,
        .training_samples = saturating_mul(run_->data.train->size(), train.epochs),
        .lengths = lengths(),
        .stop = options_.stop,
        .listener = listener_};
    RunPlan found = run_->is_finished && request.plan.file.empty() && run_->job == nullptr
                        ? planner.evaluation_plan()
                        : planner.plan();
    train.plan = std::move(found.plan);
    train.plan_request = std::move(found.plan_request);
    train.mini_batch_size = found.mini_batch_size;
    const int64_t steps = steps_of(train, run_->data.train->size());
    const options::RunFacts facts{request, train.plan, run_->job != nullptr,
                                  run_->data.train->size(), steps};
    warn(options::idle_options(facts, options_.given), will_train());
    request.plan.micro_batches =
        capped_micro_batches(request.plan.micro_batches, train.mini_batch_size, {});
    const int64_t schedule = schedule_length(steps);
    train.settings = kept_options(train::data_digest(*run_->data.train), schedule);
    warn(resume_warning(request, options_.given, train, run_->model), will_train());
    warn(schedule_warning(train, schedule, steps), will_train());
  }

  /// What checkpoints keep of the options, with those that the plan has decided.
  std::map<std::string, std::string> kept_options(const std::string& data,
                                                  int64_t schedule_steps) const {
    options::TrainRequest request = run_->request;
    request.run.schedule_steps = options::unless_zero(schedule_steps);
    const plan::Plan& plan = run_->train.plan;
    request.run.batch_size = run_->train.mini_batch_size;
    request.plan.weights = plan.weights;
    request.plan.compensation = plan.compensation;
    request.plan.sync = options::SyncRequest{plan.sync_method()};
    request.plan.gradient_precision = plan.gradient_precision;
    request.plan.precision = plan.precision;
    std::map<std::string, std::string> kept = options::kept_options(request);
    kept["--data"] = data;
    const std::string codings = plan::boundaries_text(plan);
    kept["--boundary"] = codings.empty() ? to_string(plan::BoundaryCoding{}) : codings;
    return kept;
  }

  void set_world() {
    train::TrainOptions& train = run_->train;
    const int workers = train.plan.num_workers();
    if (run_->job == nullptr) {
      for (const at::Device device : dealt(options_.devices, workers))
        train.device_of_worker.push_back(device.str());
      return;
    }
    const Job& job = *run_->job;
    // Fewer workers than ranks may be faster; a user who asks for fewer has counted wrong.
    const bool may_idle = run_->request.plan.file.empty() &&
                          *run_->request.plan.workers >= job.ranks() - job.servers();
    run_->world = run_->job->make_world(workers, may_idle);
    train.world = run_->world.get();
    warn(job_warnings(job, train, may_idle), true);
  }

  /// The threads that this process trains with: those of all workers, or of the rank's own.
  int64_t own_threads() const {
    const train::TrainOptions& train = run_->train;
    const auto workers = train.world == nullptr ? static_cast<int64_t>(train.plan.num_workers())
                                                : std::ssize(train.world->site().own_workers());
    return saturating_mul(workers, train.threads_per_worker);
  }

  bool will_train() const {
    return !run_->is_finished && !(options_.stop != nullptr && *options_.stop);
  }

  void warn(const std::string& text, bool when) {
    if (!when) return;
    listener_.tell(text);
    run_->warnings += text;
  }

  const PrepareOptions& options_;
  Listener listener_;
  std::vector<std::pair<std::string, std::string>> asked_;
  std::optional<PreparedRun> run_;
};

}  // namespace

std::vector<cluster::DeviceName> devices_of(const options::TrainRequest& request) {
  const auto own = launch::own_job();
  try {
    return own_devices(request.run.device, own ? own->local_rank : 0, own ? own->local_ranks : 1);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("--device {}", error.what()));
  }
}

JobOptions job_options(const options::TrainRequest& request,
                       const std::vector<cluster::DeviceName>& devices) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  };
  return {.command = "train",
          .silence = milliseconds(request.run.silence_s),
          .patience = milliseconds(request.run.patience_s),
          .fabric = request.run.fabric,
          .tls = request.run.tls,
          .devices = devices};
}

PreparedRun prepare(const options::TrainRequest& request, Job* job, const PrepareOptions& options) {
  return Preparation(request, job, options).run();
}

namespace {

train::TrainOptions watched(const PreparedRun& run, const Watching& watching) {
  train::TrainOptions options = run.train;
  options.observer = watching.observer;
  options.on_stuck = watching.on_stuck;
  return options;
}

}  // namespace

train::TrainResult train(const PreparedRun& run, const Watching& watching) {
  const BusyOthers others;
  train::TrainResult result = train::train(run.model, run.data, watched(run, watching));
  // Ranks beside this one are no other programs.
  if (run.job == nullptr || run.job->ranks() == 1) result.busy_others = others.cores();
  return result;
}

SerialOutcome check_against_serial(const PreparedRun& run, const Watching& watching) {
  train::TrainOptions options = watched(run, watching);
  // The learning rates are those of the whole training.
  if (options.learning_rate_steps == 0)
    options.learning_rate_steps = steps_of(options, run.data.train->size());
  SerialOutcome outcome{.check = train::check_against_serial(run.model, run.data, options,
                                                             run.request.run.check_steps)};
  if (run.request.run.compile) outcome.check.reference += ", which runs the same compiled stages";
  outcome.equal = outcome.check.equal();
  // Only rank 0 has the reference.
  if (run.job != nullptr)
    outcome.equal = run.job->from_first([&] { return outcome.equal ? "1" : "0"; }) == "1";
  return outcome;
}

}  // namespace penstock::job
