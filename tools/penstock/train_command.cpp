// penstock train: plans if need be, trains, and puts the prediction beside the measurement.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/imported/import_model.h"
#include "penstock/launch/job_environment.h"
#include "penstock/model/mixing.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/report/page/html_report.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/runtime/fabric/failure.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/schedule/formats/chrome_trace.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/folder_lock.h"
#include "penstock/train/data/data_digest.h"
#include "penstock/train/data/load_data.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/trainer.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/log.h"
#include "penstock/util/printable.h"
#include "penstock/util/units.h"
#include "tools/penstock/adapted_plan.h"
#include "tools/penstock/auto_plan.h"
#include "tools/penstock/begin_run.h"
#include "tools/penstock/chosen_model.h"
#include "tools/penstock/command.h"
#include "tools/penstock/command_line.h"
#include "tools/penstock/job.h"
#include "tools/penstock/job_auto_plan.h"
#include "tools/penstock/prediction.h"
#include "tools/penstock/thread_memory.h"
#include "tools/penstock/train_arguments.h"
#include "tools/penstock/train_check.h"
#include "tools/penstock/train_history.h"
#include "tools/penstock/train_output.h"
#include "tools/penstock/training_settings.h"
#include "tools/penstock/useless_options.h"
#include "tools/penstock/worker_devices.h"

namespace penstock::tool {

namespace {

std::atomic<bool> g_stop{false};

extern "C" void on_signal(int) {
  g_stop.store(true);
  end_at_next_signal();
}

/// Whether the plan's stages are those of the model; other layers are most likely another model's.
void check_model(const plan::Plan& plan, const model::Model& model, const std::string& path) {
  try {
    plan::stage_of_layer(plan, model.graph());
  } catch (const ConfigError& error) {
    if (plan.model.empty() || plan.model == model.name()) throw;
    throw ConfigError(fmt::format("{} is a plan for {}, --model is {}: {}", path, plan.model,
                                  model.name(), error.what()));
  }
}

void cap_micro_batches(TrainArguments& options, bool says) {
  const int64_t most = options.train.mini_batch_size;
  if (options.plan.micro_batches <= most) return;
  if (says) {
    std::cerr << fmt::format("--micro-batches {}: a step of {} has {}\n",
                             options.plan.micro_batches, report::plural(most, "sample"),
                             report::plural(most, "micro-batch"));
  }
  options.plan.micro_batches = most;
}

/// What auto_plan() has to know of the other options; the same on all ranks of a job, of which one
/// `says` what it changes.
void complete_request(TrainArguments& options, const model::Model& model, bool says) {
  if (options.workers < 1 || options.workers > kMaxThreads) {
    throw ConfigError(
        fmt::format("--workers must lie between 1 and {}, found {}", kMaxThreads, options.workers));
  }
  // Only under flush are the gradients of a weight that stages share added up at one moment.
  if (!graph::tie_groups(model.graph()).empty() &&
      !plan::parse_strategy_choice(options.plan.strategy) && options.plan.weights.empty()) {
    options.plan.weights = "flush";
  }
  cap_micro_batches(options, says);
  if (options.chunks) options.plan.chunks = static_cast<int>(*options.chunks);
  if (options.slack) options.plan.slack = *options.slack;
  if (options.keep) options.plan.keep = *options.keep;
  options.plan.workers = static_cast<int>(options.workers);
  options.plan.threads_per_worker = options.train.threads_per_worker;
  options.plan.mini_batch_size = options.train.mini_batch_size;
  options.plan.seed = options.seed;
  options.plan.global_norm = options.train.max_grad_norm > 0 || scales_loss(options.plan.precision);
  options.plan.gradient_groups = options.train.gradient_groups;
  options.plan.optimizer = options.train.optimizer;
}

/// The user's plan.
plan::Plan plan_of_file(TrainArguments& options, const model::Model& model) {
  plan::Plan plan = plan::load_plan(options.plan_path);
  // Every worker is a thread with its own copy of the weights: refused before anything is made
  // for it.
  if (plan.num_workers() > kMaxThreads) {
    throw ConfigError(fmt::format(
        "{}: the plan has {} workers, expected at most {}: they are threads of this process",
        options.plan_path, plan.num_workers(), kMaxThreads));
  }
  if (options.batch_size->empty())
    options.train.mini_batch_size = saturating_mul(plan.micro_batch_size, plan.micro_batches);
  check_batch_size(options);
  check_model(plan, model, options.plan_path);
  if (!plan.model.empty() && plan.model != model.name()) {
    std::cerr << fmt::format(
        "warning: {} is a plan for {}, --model is {}: the layers have the same names, but the "
        "plan's "
        "times may not be this model's\n",
        options.plan_path, printable(plan.model), model.name());
  }
  plan.model = model.name();
  if (!options.precision.empty() && parse_precision(options.precision) != plan.precision) {
    throw ConfigError(fmt::format(
        "{} was made for {}, --precision is {}: plan with a profile of that precision (penstock "
        "profile --precision {})",
        options.plan_path, to_string(plan.precision), options.precision, options.precision));
  }
  cap_micro_batches(options, /*says=*/true);
  return adapted_plan(plan, {.mini_batch_size = options.train.mini_batch_size,
                             .micro_batches = options.plan.micro_batches,
                             .weights = options.plan.weights,
                             .shard_optimizer = options.plan.shard_optimizer});
}

/// Takes the method and the precision that the user names. What a plan of theirs predicts stays
/// that of its own, which one rank `says`; its notes, which may be about them, go.
void set_sync(const TrainArguments& options, plan::Plan& plan, bool says) {
  const auto before = std::pair(plan.sync, plan.sync_precision);
  if (!options.sync.empty() && options.sync != "auto") plan.sync = options.sync;
  if (!options.sync_precision.empty()) plan.sync_precision = options.sync_precision;
  if (options.plan_path.empty() || before == std::pair(plan.sync, plan.sync_precision)) return;
  plan.notes.clear();
  if (says) {
    std::cerr << fmt::format("{}: its predictions are for --sync {} --sync-precision {}\n",
                             options.plan_path, before.first, before.second);
  }
}

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

/// Why servers have nothing to do; empty: they have, or there are none.
std::string servers_advice(const Job& job, const train::TrainOptions& options) {
  if (job.servers() == 0) return {};
  const plan::GradientSync sync = plan::parse_gradient_sync(options.plan.sync);
  std::string why;
  if (options.plan.replicas() == std::vector<int>(options.plan.stages.size(), 1)) {
    why = "the plan has no replicas, so there are no gradients to add";
  } else if (sync == plan::GradientSync::Ordered || sync == plan::GradientSync::Ring) {
    why = fmt::format(
        "--sync {} does not use {} (expected summation, hierarchical, parameter-server or "
        "asynchronous)",
        options.plan.sync, job.servers() == 1 ? "it" : "them");
  } else if (options.world->site().num_training_ranks() == 1) {
    why = "all workers are on one rank, where gradients are added in shared memory";
  }
  if (why.empty()) return {};
  return fmt::format(
      "warning: the job's {} nothing to do: {}\n",
      job.servers() == 1 ? "server has" : fmt::format("{} servers have", job.servers()), why);
}

/// That a plan for the threads of one process is used by several ranks; empty: it is not.
std::string plan_advice(const train::TrainOptions& options) {
  const auto& levels = options.plan.cluster.levels;
  const bool for_threads = std::any_of(levels.begin(), levels.end(),
                                       [](const auto& level) { return level.by_reference; });
  if (!for_threads || options.world->site().num_training_ranks() == 1) return {};
  return "warning: the plan was made for workers that are threads of one process; between ranks "
         "its messages and sums take longer than it predicts\n";
}

/// That a plan moves activations to where they are already; empty: it does not.
std::string offload_advice(const plan::Plan& plan,
                           const std::vector<cluster::DeviceName>& devices) {
  const bool moves = std::any_of(plan.stages.begin(), plan.stages.end(),
                                 [](const plan::Stage& stage) { return stage.offload; });
  const bool on_host = std::all_of(devices.begin(), devices.end(),
                                   [](const auto& device) { return device.is_cpu(); });
  if (!moves || !on_host) return {};
  return "warning: the plan moves activations to the memory of the host, where this run computes: "
         "nothing moves\n";
}

/// How often the launcher has started the job again, which may have this one rank only.
int restarts_of(const Job* job) {
  if (job != nullptr) return job->restart();
  const auto own = launch::own_job();
  return own ? own->restart : 0;
}

/// What rank 0's `part` returns, or this process's own.
std::string from_first(Job* job, const std::function<std::string()>& part) {
  return job == nullptr ? part() : job->from_first(part);
}

/// The plan of the checkpoint that the run goes on from, if it was made for the same request, so
/// that the run goes on as if it had not ended. Says which plan it will be. Empty: to be planned.
std::string plan_of_checkpoint(const TrainArguments& options, const model::Model& model) {
  if (!options.train.resume || !options.plan_path.empty() ||
      !train::has_checkpoint(options.checkpoint))
    return {};
  const train::SavedPlan saved = train::newest_plan(options.checkpoint, model);
  if (saved.request == options.train.plan_request) {
    std::cerr << fmt::format("plan: that of the checkpoint, {}\n", saved.file.string());
    return saved.text;
  }
  std::cerr << (saved.file.empty()
                    ? std::string("plan: made anew, because the checkpoint holds none\n")
                    : fmt::format(
                          "plan: made anew for {}; that of the checkpoint was made for {}\n",
                          options.train.plan_request, saved.request));
  return {};
}

/// Ranks may lack the file, and have rank 0's plan all the same; one that says something else is
/// refused.
void check_same_plans(Job& job, const std::string& path) {
  const std::vector<std::string> plans = job.together([&]() -> std::string {
    if (!job.is_first() && !std::filesystem::exists(path)) return {};
    const plan::Plan plan = plan::load_plan(path);
    return fmt::format("{} on {}, CRC {:08x}", plan::to_string(plan.strategy),
                       report::plural(plan.num_workers(), "worker"), crc32_of(plan::to_json(plan)));
  });
  for (size_t r = 1; r < plans.size(); ++r) {
    if (plans[r].empty() || plans[r] == plans.front()) continue;
    throw ConfigError(
        fmt::format("--plan {}: the ranks of a job must have the same plan: the file of rank 0 is "
                    "{}, that of rank {} is {}",
                    path, plans.front(), r, plans[r]));
  }
}

/// The checkpoint's, the user's, or one made now; that of rank 0 on all ranks.
plan::Plan plan_of_job(Job* job, TrainArguments& options, const model::Model& model) {
  const bool is_first = job == nullptr || job->is_first();
  const std::string saved = from_first(job, [&] { return plan_of_checkpoint(options, model); });
  if (!saved.empty()) return plan::parse_plan(saved, "the checkpoint's plan");
  if (options.plan_path.empty()) {
    complete_request(options, model, is_first);
    if (job == nullptr)
      options.plan.between_gpus = level_between(options.devices, options.plan.workers);
    options.plan.sums_wait = parse_fabric(options.fabric) == FabricChoice::Nccl;
    return job == nullptr ? auto_plan(model, options.plan)
                          : auto_plan_together(*job, model, options.plan);
  }
  if (job != nullptr) check_same_plans(*job, options.plan_path);
  const std::string text =
      from_first(job, [&] { return plan::to_json(plan_of_file(options, model)); });
  const plan::Plan plan = plan::parse_plan(text, "the plan of rank 0");
  if (!is_first && options.batch_size->empty())
    options.train.mini_batch_size = saturating_mul(plan.micro_batch_size, plan.micro_batches);
  return plan;
}

/// plan_of_job(), or one to end with at once where a signal came while it was made.
plan::Plan plan_unless_stopped(Job* job, TrainArguments& options, const model::Model& model) {
  if (job != nullptr) return plan_of_job(job, options, model);  // ranks stop together, later
  try {
    options.plan.stop = &g_stop;
    if (!g_stop) return plan_of_job(job, options, model);
  } catch (const RuntimeError&) {
    if (!g_stop) throw;
  }
  if (const std::string saved = plan_of_checkpoint(options, model); !saved.empty())
    return plan::parse_plan(saved, "the checkpoint's plan");
  // So that a run that resumes plans anew.
  options.train.plan_request = "no plan: stopped before one was made";
  plan::Plan plan = one_stage(model);
  plan.cluster = cluster::local_cluster(1, 1);
  return plan;
}

/// What a run that continues a checkpoint does otherwise than the run that saved it.
std::string resume_advice(const TrainArguments& options, const CLI::App& app,
                          const model::Model& model) {
  if (!options.train.resume || !train::has_checkpoint(options.checkpoint)) return {};
  const train::CheckpointPosition saved = train::newest_position(options.checkpoint, model);
  std::string text = changed_settings(saved_settings(saved), options.train.settings);
  if (saved.seed != options.seed && !app.get_option("--seed")->empty()) {
    text += fmt::format(
        "warning: --seed {} has no effect: the run goes on with the checkpoint's seed, {}\n",
        options.seed, saved.seed);
  }
  return text;
}

/// Whether nothing is left to train: rank 0 looks, and all ranks know or throw. If something is, it
/// takes the folder of the checkpoints for this run.
bool is_finished(Job* job, const TrainArguments& options, const model::Model& model,
                 std::optional<train::RunLock>& lock) {
  // The rank of a job that has failed may still be ending.
  const std::chrono::seconds patience(restarts_of(job) > 0 ? 10 : 0);
  return from_first(job, [&] {
           if (begin_run(options, model) == Begin::Finished) return "finished";
           if (!options.checkpoint.empty())
             lock.emplace(train::folder_of_checkpoints(options.checkpoint), patience);
           return "";
         }) == "finished";
}

/// What the user should know before hours are spent.
std::string advice(const plan::Plan& plan, int threads_per_worker) {
  std::string text;
  if (plan.weights == "latest") {
    text +=
        "weights 'latest': backward uses newer weights than forward, so its gradients are not "
        "those of the loss; training may not converge\n";
  }
  const int64_t threads = saturating_mul(plan.num_workers(), threads_per_worker);
  const int64_t cores = std::thread::hardware_concurrency();
  if (cores > 0 && threads > cores) {
    text +=
        fmt::format("{} with {} each share {}: the prediction assumes a core for every thread\n",
                    report::plural(plan.num_workers(), "worker"),
                    report::plural(threads_per_worker, "thread"), report::plural(cores, "core"));
  }
  return text;
}

/// Trains twice for a few steps, and nothing else.
int compare_with_serial(const TrainArguments& options, const model::Model& model,
                        const train::DataSplit& data, Job* job) {
  train::TrainOptions train_options = options.train;
  // The learning rates are those of the whole training.
  const int64_t whole = saturating_mul(train_options.epochs,
                                       ceil_div(data.train->size(), train_options.mini_batch_size));
  train_options.learning_rate_steps =
      train_options.max_steps > 0 ? std::min(whole, train_options.max_steps) : whole;
  const train::SerialCheck result =
      train::check_against_serial(model, data, train_options, options.check_steps);
  if (job != nullptr) {
    // Only rank 0 has the reference.
    const std::string equal = job->from_first([&] { return result.equal() ? "1" : "0"; });
    if (!job->is_first()) return equal == "1" ? kExitYes : kExitNo;
  }
  write_output("", options.json ? check_json(train_options.plan, result)
                                : check_text(train_options.plan, result));
  return result.equal() ? kExitYes : kExitNo;
}

/// Everything that `penstock report` shows of a run. A run too long to be drawn is reported without
/// its timeline.
std::string page_of(const std::string& model, const Outcome& outcome,
                    const report::History& earlier) {
  report::ReportInput input{
      .plan = outcome.plan,
      .history = report::parse_history(history_json(model, outcome, earlier), "history")};
  if (outcome.servers > 0) {
    const int64_t ranks = std::ssize(outcome.result.ranks);
    input.notes.push_back(fmt::format(
        "The job had {}; {} only added gradients (--sync {}).", report::plural(ranks, "rank"),
        outcome.servers == 1 ? "the last one, a server,"
                             : fmt::format("the last {}, servers,", outcome.servers),
        outcome.plan.sync));
  }
  if (outcome.predicted != nullptr)
    input.timelines = {outcome.predicted->timeline, outcome.result.timeline};
  if (const std::string trouble = report::too_large_to_draw(input.timelines); !trouble.empty()) {
    input.timelines.clear();
    input.notes.push_back("No timeline: " + trouble + ".");
  }
  return report::html_report(input);
}

/// The threads that this process trains with: those of all workers, or of the rank's own.
int64_t threads_of(const train::TrainOptions& options) {
  const auto workers = options.world == nullptr ? static_cast<int64_t>(options.plan.num_workers())
                                                : std::ssize(options.world->site().own_workers());
  return saturating_mul(workers, options.threads_per_worker);
}

train::DataSplit data_for(const model::Model& model, const TrainArguments& options,
                          const CLI::App& app) {
  const train::DataFormatRow* const format = train::find_data_format(options.data);
  if (!options.test_data.empty() && (format == nullptr || !format->is_own())) {
    throw ConfigError(
        fmt::format("--test-data is for training samples in a file, --data is {}", options.data));
  }
  try {
    return train::load_data({.name = options.data,
                             .folder = options.data_folder,
                             .sample = train::samples_for(model, options.train.loss),
                             .train_samples = options.train_samples,
                             .test_samples = options.test_samples,
                             .seed = options.seed,
                             .test_file = options.test_data,
                             .test_share = options.test_share,
                             .ignore_index = options.train.loss.ignore_index,
                             .skip_bad_samples = options.bad_samples == "skip"});
  } catch (const ConfigError& error) {
    if (!app.get_option("--data")->empty()) throw;
    throw ConfigError(fmt::format("no --data is given, and the default, {}, cannot be used: {}",
                                  options.data, error.what()));
  }
}

/// What the file has of earlier runs of the training that this one has continued.
report::History earlier_history(const TrainArguments& options, const std::string& model) {
  std::error_code ignored;
  if (!options.train.resume || options.history.empty() ||
      !std::filesystem::is_regular_file(options.history, ignored))
    return {};
  try {
    report::History earlier = report::load_history(options.history);
    if (earlier.model == model) return earlier;
    std::cerr << fmt::format("warning: {} was the history of '{}': it is replaced\n",
                             options.history, printable(earlier.model));
  } catch (const Error& error) {
    std::cerr << fmt::format("warning: the earlier history is lost: {}\n", error.what());
  }
  return {};
}

/// The results, where the user wants them. All that can be written is written before the first
/// failure is thrown: it took hours to make.
void write_results(const TrainArguments& options, const model::Model& model,
                   const train::TrainResult& result, int servers) {
  const std::optional<Prediction> predicted = predict(options.train, result);
  const Outcome outcome{.plan = options.train.plan,
                        .result = result,
                        .predicted = predicted ? &*predicted : nullptr,
                        .saves = !options.checkpoint.empty(),
                        .servers = servers};
  std::exception_ptr failure;
  const auto attempt = [&failure](const auto& write) {
    try {
      write();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  const report::History earlier = earlier_history(options, model.name());
  // A training that was complete before has its files already.
  const bool was_complete = options.train.resume && result.losses.empty() && !result.interrupted;
  if (was_complete && (!options.history.empty() || !options.html.empty()))
    std::cerr << "nothing was trained: --history and --html write nothing\n";
  if (!options.history.empty() && !was_complete)
    attempt([&] { write_output(options.history, history_json(model.name(), outcome, earlier)); });
  if (!options.html.empty() && !was_complete)
    attempt([&] { write_output(options.html, page_of(model.name(), outcome, earlier)); });
  if (!options.trace.empty() && predicted) {
    attempt([&] {
      write_output(options.trace, schedule::chrome_trace({&predicted->timeline, &result.timeline}));
    });
  }
  attempt([&] { write_output("", options.json ? to_json(outcome) : to_text(outcome)); });
  if (failure) std::rethrow_exception(failure);
}

int run(TrainArguments& options, const CLI::App& app, Job* job) {
  const bool is_first = job == nullptr || job->is_first();
  if (!is_first) {
    set_log_sink([rank = job->rank()](LogLevel level, std::string_view message) {
      if (level == LogLevel::Warning) std::cerr << fmt::format("rank {}: {}\n", rank, message);
    });
  }
  std::optional<model::Model> chosen;
  train::DataSplit data;
  const auto load = [&]() -> std::string {
    chosen.emplace(chosen_model(options.model));
    options.train.loss = model::loss_for(*chosen, options.train.loss);
    options.plan.loss = options.train.loss;
    data = data_for(*chosen, options, app);
    return "";
  };
  if (job == nullptr)
    load();
  else
    job->together(load);
  const model::Model& model = *chosen;
  if (job != nullptr) {
    check_same_options(*job, app);
    job->check_same("model", model_digest(model));
    job->check_same("data", train::data_digest(data));
    job->check_same("number of servers", fmt::to_string(job->servers()));
    if (app.get_option("--workers")->empty()) options.workers = job->ranks() - job->servers();
  }

  train::TrainOptions& train_options = options.train;
  options.plan.training_samples = saturating_mul(data.train->size(), train_options.epochs);
  if (!options.precision.empty()) options.plan.precision = parse_precision(options.precision);
  if (!options.sync.empty()) options.plan.sync = options.sync;
  if (!options.sync_precision.empty()) options.plan.sync_precision = options.sync_precision;
  // A job that the launcher has started again continues.
  if (restarts_of(job) > 0 && !options.checkpoint.empty()) train_options.resume = true;
  train_options.plan_request = plan_request(options);  // before planning fills gaps
  std::optional<train::RunLock> lock;
  std::unique_ptr<runtime::World> world;
  const bool finished = is_finished(job, options, model, lock);
  train_options.plan = finished && job == nullptr && options.plan_path.empty()
                           ? one_stage(model)
                           : plan_unless_stopped(job, options, model);
  if (finished && options.plan_path.empty()) train_options.plan.precision = options.plan.precision;
  set_sync(options, train_options.plan, is_first);
  train_options.settings = training_settings(options, train::data_digest(*data.train));
  if (is_first && !finished && !g_stop)
    std::cerr << useless_options(app, options, job != nullptr)
              << resume_advice(options, app, model);
  train_options.seed = options.seed;
  train_options.checkpoint = options.checkpoint;
  train_options.evaluate = !options.no_evaluation;
  train_options.shuffle = !options.no_shuffle;
  train_options.deadline = std::chrono::seconds(options.deadline_s);
  train_options.stop = &g_stop;
  if (job != nullptr) {
    // Fewer workers than ranks may be faster; a user who asks for fewer has counted wrong.
    const int training = job->ranks() - job->servers();
    const int workers = train_options.plan.num_workers();
    const bool chosen = options.plan_path.empty() && options.workers >= training;
    world = job->make_world(workers, /*may_idle=*/chosen);
    train_options.world = world.get();
    if (is_first) std::cerr << servers_advice(*job, train_options) << plan_advice(train_options);
    if (is_first && chosen && workers < training) {
      std::cerr << fmt::format("{} of {} {}: the plan has {}\n", workers,
                               report::plural(training, "rank"), workers == 1 ? "trains" : "train",
                               report::plural(workers, "worker"));
    }
  } else {
    for (const at::Device device : dealt(options.devices, train_options.plan.num_workers()))
      train_options.device_of_worker.push_back(device.str());
  }
  train::check_trainable(model, data, train_options);
  if (is_first && !finished && imported::is_program_file(options.model.name) &&
      train_options.plan.micro_batches > 1 && model::mixes_samples(model)) {
    std::cerr << "warning: the model mixes the samples of its batch, so what it learns depends on "
                 "how a step is cut: --micro-batches 1 is what PyTorch computes\n";
  }
  require_memory_for_threads(threads_of(train_options));
  const auto observer = std::make_shared<ConsoleObserver>();
  train_options.on_stuck = [observer](const std::string& failure) {
    observer->finish();
    // Some thread never returns, so neither would train() nor exit().
    _exit(complain(failure, kExitFailure));
  };
  if (is_first) {
    if (!finished && !g_stop) {
      std::cerr << offload_advice(train_options.plan, options.devices)
                << report::plan_table(train_options.plan) << '\n'
                << advice(train_options.plan, train_options.threads_per_worker);
    }
    train_options.observer = observer.get();
    // train() logs from this thread only, between its runs
    set_log_sink([observer](LogLevel, std::string_view message) {
      observer->finish();
      std::cerr << message << std::endl;
    });
  }

  if (options.check_against_serial) return compare_with_serial(options, model, data, job);
  const train::TrainResult result = train::train(model, data, train_options);
  observer->finish();
  if (is_first) write_results(options, model, result, job == nullptr ? 0 : job->servers());
  return kExitYes;
}

/// Alone or as a rank of a job. A rank that is not the first leaves long reports to it.
std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

int run(TrainArguments& options, const CLI::App& app) {
  catch_end_signals(on_signal);
  check(options);
  train::validate(options.train);
  const auto own = launch::own_job();
  const auto devices = parse_option("--device", options.device, [&](const std::string& text) {
    return own_devices(text, own ? own->local_rank : 0, own ? own->local_ranks : 1);
  });
  std::unique_ptr<Job> job;
  try {
    job = Job::join({.command = "train",
                     .silence = milliseconds(options.silence_s),
                     .patience = milliseconds(options.patience_s),
                     .fabric = parse_fabric(options.fabric),
                     .devices = devices,
                     .stop = &g_stop});
  } catch (const Error&) {
    if (!g_stop) throw;
    // There will be no job; rank 0 writes the result of a run without steps.
    if (is_later_rank()) return kExitYes;
  }
  options.devices = devices;
  // A GPU waits for its inputs sooner than it is kept waiting by the threads that gather them.
  if (options.data_threads->empty() &&
      std::any_of(devices.begin(), devices.end(),
                  [](const auto& device) { return !device.is_cpu(); })) {
    constexpr int kMostDataThreads = 4;
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    options.train.data_threads = std::clamp(cores / 2, 1, kMostDataThreads);
  }
  options.plan.device = device_to_profile(devices);
  options.plan.device_graphs = options.train.cuda_graphs;
  if (job == nullptr || job->is_first()) return run(options, app, job.get());
  try {
    return run(options, app, job.get());
  } catch (const Error&) {
    runtime::Failure failure = runtime::describe(std::current_exception());
    failure.text = failure.text.substr(0, failure.text.find('\n'));
    failure.text = failure.text.substr(0, failure.text.find("; the workers"));
    // Rank 0 says it itself.
    const bool is_usage = failure.kind == runtime::Failure::Kind::Config ||
                          failure.kind == runtime::Failure::Kind::Checkpoint;
    if (is_usage && failure.text.starts_with("rank 0: ")) return kExitUsage;
    runtime::raise(failure);
  }
}

}  // namespace

Command train_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* app = add_train(parent, *arguments);
  return {app, [arguments, app]() { return run(*arguments, *app); }};
}

}  // namespace penstock::tool
