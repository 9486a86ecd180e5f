// penstock train: plans if need be, trains, and puts the prediction beside the measurement.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "penstock/planner/planner.h"
#include "penstock/report/page/html_report.h"
#include "penstock/report/report.h"
#include "penstock/schedule/formats/chrome_trace.h"
#include "penstock/schedule/generate.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/trainer.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/log.h"
#include "penstock/util/units.h"
#include "tools/penstock/auto_plan.h"
#include "tools/penstock/command.h"
#include "tools/penstock/model_options.h"
#include "tools/penstock/prediction.h"
#include "tools/penstock/train_check.h"
#include "tools/penstock/train_history.h"
#include "tools/penstock/train_output.h"

namespace penstock::tool {

namespace {

struct Options : CommonOptions {
  ModelOptions model;
  train::DataSpec data;
  std::string data_folder;
  AutoPlanRequest plan;
  std::string plan_path;
  train::TrainOptions train;
  int64_t workers = 1;
  std::optional<int64_t> chunks;
  std::optional<int64_t> slack;
  int64_t deadline_s = 300;
  std::string checkpoint;
  std::string trace;
  std::string history;
  std::string html;
  bool check_against_serial = false;
  int64_t check_steps = 20;
  bool no_evaluation = false;
  bool no_shuffle = false;
  bool batch_size_given = false;
  CLI::Option* batch_size = nullptr;
};

constexpr int kMaxThreads = 1024;
constexpr int64_t kMaxSlack = 1'000'000;

std::atomic<bool> g_stop{false};

extern "C" void on_signal(int signal) {
  g_stop.store(true);
  std::signal(signal, SIG_DFL);  // the second one ends the program at once
}

void check_batch_size(const Options& options) {
  if (options.train.mini_batch_size < 1 || options.train.mini_batch_size > 10'000'000) {
    throw ConfigError(
        fmt::format("the batch size must lie between 1 and 10000000 samples (--batch-size, or that "
                    "of the plan), found {}",
                    options.train.mini_batch_size));
  }
}

plan::Plan plan_of(Options& options, const model::Model& model) {
  if (!options.plan_path.empty()) {
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
    if (options.plan.micro_batches > 0) plan.micro_batches = options.plan.micro_batches;
    if (!options.plan.weights.empty()) plan.weights = options.plan.weights;
    return scale_plan(std::move(plan), options.train.mini_batch_size);
  }
  if (options.workers < 1 || options.workers > kMaxThreads) {
    throw ConfigError(
        fmt::format("--workers must lie between 1 and {}, found {}", kMaxThreads, options.workers));
  }
  // Only under flush are the gradients of a weight that stages share added up at one moment.
  if (!graph::tie_groups(model.graph()).empty() && options.plan.strategy == "auto" &&
      options.plan.weights.empty()) {
    options.plan.weights = "flush";
  }
  if (options.chunks) options.plan.chunks = static_cast<int>(*options.chunks);
  if (options.slack) options.plan.slack = *options.slack;
  options.plan.workers = static_cast<int>(options.workers);
  options.plan.threads_per_worker = options.train.threads_per_worker;
  options.plan.mini_batch_size = options.train.mini_batch_size;
  options.plan.seed = options.seed;
  options.plan.global_norm = options.train.max_grad_norm > 0;
  options.plan.optimizer = options.train.optimizer;
  return auto_plan(model, options.plan);
}

void check_sizes(const Options& options) {
  check_batch_size(options);
  if (options.plan.micro_batches < 0)
    throw ConfigError(
        fmt::format("--micro-batches must be at least 1, found {}", options.plan.micro_batches));
  if (options.chunks &&
      (*options.chunks < planner::kMinChunks || *options.chunks > planner::kMaxChunks)) {
    throw ConfigError(fmt::format("--chunks must lie between {} and {}, found {}",
                                  planner::kMinChunks, planner::kMaxChunks, *options.chunks));
  }
  if (options.slack && (*options.slack < 0 || *options.slack > kMaxSlack)) {
    throw ConfigError(
        fmt::format("--slack must lie between 0 and {}, found {}", kMaxSlack, *options.slack));
  }
  if (options.deadline_s < 1 || options.deadline_s > 10'000'000) {
    throw ConfigError(fmt::format("--deadline must lie between 1 and 10000000 seconds, found {}",
                                  options.deadline_s));
  }
  train::validate(options.train);
  if (options.plan_path.empty() && options.plan.strategy != "auto") {
    const schedule::Kind kind = schedule::parse_strategy(options.plan.strategy);
    if (!options.plan.weights.empty() &&
        !schedule::supports(kind, schedule::parse_weight_policy(options.plan.weights))) {
      throw ConfigError(fmt::format("--strategy {} cannot run with --weights {}",
                                    options.plan.strategy, options.plan.weights));
    }
  }
  if (options.check_steps < 1 || options.check_steps > 1'000'000) {
    throw ConfigError(
        fmt::format("--check-steps must lie between 1 and 1000000, found {}", options.check_steps));
  }
  if (options.train.resume && options.checkpoint.empty())
    throw ConfigError("--resume needs --checkpoint DIR to resume from");
}

/// What the user should know before hours are spent.
std::string advice(const plan::Plan& plan, int threads_per_worker) {
  std::string text;
  if (plan.weights == "latest") {
    text +=
        "weights 'latest': backward runs on newer weights than forward did, so these are not the "
        "gradients of the loss; training may not "
        "converge\n";
  }
  const int64_t threads = saturating_mul(plan.num_workers(), threads_per_worker);
  const int64_t cores = std::thread::hardware_concurrency();
  if (cores > 0 && threads > cores) {
    text += fmt::format(
        "{} workers with {} thread(s) each share {} cores: the prediction assumes a core for every "
        "thread\n",
        plan.num_workers(), threads_per_worker, cores);
  }
  return text;
}

/// Trains twice for a few steps, and nothing else.
int check(const Options& options, const model::Model& model, const train::DataSplit& data) {
  train::TrainOptions train_options = options.train;
  // The learning rates are those of the whole training.
  const int64_t whole = saturating_mul(train_options.epochs,
                                       ceil_div(data.train->size(), train_options.mini_batch_size));
  train_options.learning_rate_steps =
      train_options.max_steps > 0 ? std::min(whole, train_options.max_steps) : whole;
  const train::SerialCheck result =
      train::check_against_serial(model, data, train_options, options.check_steps);
  write_output("", options.json ? check_json(train_options.plan, result)
                                : check_text(train_options.plan, result));
  return result.equal() ? kExitYes : kExitNo;
}

/// Everything that `penstock report` shows of a run. A run too long to be drawn is reported without
/// its timeline.
std::string page_of(const std::string& model, const Outcome& outcome) {
  report::ReportInput input{
      .plan = outcome.plan,
      .history = report::parse_history(history_json(model, outcome), "history")};
  if (outcome.predicted != nullptr)
    input.timelines = {outcome.predicted->timeline, outcome.result.timeline};
  if (const std::string trouble = report::too_large_to_draw(input.timelines); !trouble.empty()) {
    input.timelines.clear();
    input.notes.push_back("No timeline: " + trouble + ".");
  }
  return report::html_report(input);
}

int run(Options& options) {
  check_sizes(options);
  refuse_standard_output("--trace", options.trace);
  refuse_standard_output("--history", options.history);
  refuse_standard_output("--html", options.html);
  const model::Model model = make_model(options.model);
  options.data.folder = options.data_folder;
  options.data.sample_shape = model.input_shapes().front();
  options.data.classes = model.output_shapes(model.graph().outputs().front().layer).front().front();
  options.data.seed = options.seed;
  const train::DataSplit data = train::load_data(options.data);

  train::TrainOptions& train_options = options.train;
  options.plan.training_samples = saturating_mul(data.train->size(), train_options.epochs);
  train_options.plan = plan_of(options, model);
  train_options.seed = options.seed;
  train_options.checkpoint = options.checkpoint;
  train_options.evaluate = !options.no_evaluation;
  train_options.shuffle = !options.no_shuffle;
  train_options.deadline = std::chrono::seconds(options.deadline_s);
  train_options.stop = &g_stop;
  std::cerr << report::plan_table(train_options.plan) << '\n'
            << advice(train_options.plan, train_options.threads_per_worker);
  const auto observer = std::make_shared<ConsoleObserver>();
  train_options.observer = observer.get();
  // train() logs from this thread only, between its runs
  set_log_sink([observer](LogLevel, std::string_view message) {
    observer->finish();
    std::cerr << message << std::endl;
  });

  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  if (options.check_against_serial) return check(options, model, data);
  const train::TrainResult result = train::train(model, data, train_options);
  observer->finish();

  const std::optional<Prediction> predicted = predict(train_options, result);
  const Outcome outcome{train_options.plan, result, predicted ? &*predicted : nullptr};
  write_output("", options.json ? to_json(outcome) : to_text(outcome));
  if (!options.history.empty()) write_output(options.history, history_json(model.name(), outcome));
  if (!options.html.empty()) write_output(options.html, page_of(model.name(), outcome));
  if (!options.trace.empty() && predicted)
    write_output(options.trace, schedule::chrome_trace({&predicted->timeline, &result.timeline}));
  return kExitYes;
}

std::string training_kinds() {
  std::string names;
  for (const schedule::Kind kind : schedule::all_kinds()) {
    if (kind == schedule::Kind::ForwardOnly) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", schedule::to_string(kind));
  }
  return names;
}

void add_training_options(CLI::App& app, Options& options) {
  app.add_option("--epochs", options.train.epochs, "Passes over the training set")
      ->capture_default_str();
  app.add_option("--steps", options.train.max_steps, "Stop after this many optimiser steps");
  app.add_option("--warmup-steps", options.train.warmup_steps,
                 "First steps that do not count for speed")
      ->capture_default_str();
  options.batch_size = app.add_option("--batch-size", options.train.mini_batch_size,
                                      "Samples per optimiser step, over all workers")
                           ->capture_default_str();
  app.add_option("--optimizer", options.train.optimizer.name, "sgd or adam")->capture_default_str();
  app.add_option("--lr", options.train.learning_rate.base, "Learning rate")->capture_default_str();
  app.add_option("--momentum", options.train.optimizer.momentum, "Momentum of sgd")
      ->capture_default_str();
  app.add_option("--weight-decay", options.train.optimizer.weight_decay, "L2 penalty")
      ->capture_default_str();
  app.add_option("--lr-schedule", options.train.learning_rate.schedule,
                 "constant, step, cosine, linear")
      ->capture_default_str();
  app.add_option("--lr-warmup", options.train.learning_rate.warmup_steps,
                 "Steps over which the rate rises from near zero")
      ->capture_default_str();
  app.add_option("--lr-factor", options.train.learning_rate.factor, "step: multiply by this")
      ->capture_default_str();
  app.add_option("--lr-every", options.train.learning_rate.every, "step: every so many steps");
  app.add_option("--clip-norm", options.train.max_grad_norm,
                 "Scale the gradient of all weights together down to this norm where it is larger; "
                 "inf: only record the norm");
  app.add_option(
      "--gradient-groups", options.train.gradient_groups,
      "flush: sum gradients in so many groups of micro-batches, a multiple of every stage's "
      "replicas; runs with the same number "
      "agree bit for bit however many workers they have (default: as few as the replicas allow)");
  app.add_option("--threads", options.train.threads_per_worker, "Threads per worker")
      ->capture_default_str();
  app.add_option("--deadline", options.deadline_s, "Seconds that any wait may last")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint,
                 "Folder for checkpoints: saved after every epoch and when interrupted");
  app.add_flag("--resume", options.train.resume,
               "Continue from the newest checkpoint in the folder");
  auto* const check = app.add_flag("--check-against-serial", options.check_against_serial,
                                   "Only compare: train a few steps by the plan and without it, "
                                   "and say whether losses and weights are equal");
  app.add_option("--check-steps", options.check_steps, "Steps to compare")
      ->capture_default_str()
      ->needs(check);
  app.get_option("--checkpoint")->excludes(check);
  app.get_option("--resume")->excludes(check);
  app.add_option("--history", options.history,
                 "Write loss, learning rate and gradient norm of every step to this file (JSON)")
      ->excludes(check);
  app.add_option(
         "--html", options.html,
         "Write a page about the run to this file: timelines, memory, curves; needs no network")
      ->excludes(check);
  app.add_option("--trace", options.trace,
                 "Write predicted and measured timelines to this file (Chrome/Perfetto)")
      ->excludes(check);
  app.add_flag("--no-eval", options.no_evaluation, "Do not evaluate on the test set");
  app.add_flag("--no-shuffle", options.no_shuffle, "Keep the order of the data set");
}

}  // namespace

Command train_command(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("train", "Train a model through a pipeline");
  add_model_options(*app, options->model);
  app->add_option("--data", options->data.name,
                  "fashion-mnist, synthetic, or idx (four IDX files in --data-folder)")
      ->capture_default_str();
  app->add_option("--data-folder", options->data_folder,
                  "Where the IDX files are (default: Debian's dataset-fashion-mnist)");
  app->add_option("--train-samples", options->data.train_samples,
                  "Use the first so many training samples");
  app->add_option("--test-samples", options->data.test_samples,
                  "Use the first so many test samples");
  auto* plan = app->add_option("--plan", options->plan_path, "Train by this plan");
  app->add_option("--strategy", options->plan.strategy, "auto, or a kind: " + training_kinds())
      ->capture_default_str()
      ->excludes(plan);
  app->add_option("--workers", options->workers, "Workers (threads of this process)")
      ->capture_default_str()
      ->excludes(plan);
  app->add_option("--profile", options->plan.profile_path,
                  "Plan from this profile instead of measuring")
      ->excludes(plan);
  app->add_option("--chunks", options->chunks, "interleaved: stages per worker (default: chosen)")
      ->excludes(plan);
  app->add_option("--slack", options->slack,
                  "eager-1f1b: micro-batches in flight beyond 1F1B's for each stage behind "
                  "(default: chosen)")
      ->excludes(plan);
  app->add_option("--weights", options->plan.weights,
                  "Weight policy: flush, stash, vertical-sync, 2bw, latest");
  app->add_option("--micro-batches", options->plan.micro_batches,
                  "Micro-batches per optimiser step (default: the strategy's own)");
  add_training_options(*app, *options);
  add_common(*app, *options);
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool
