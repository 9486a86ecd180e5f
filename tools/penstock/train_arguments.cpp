#include "tools/penstock/train_arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/cluster/device_name.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/planner/planner.h"
#include "penstock/schedule/generate.h"
#include "penstock/train/data/data_formats.h"
#include "penstock/util/error.h"
#include "tools/penstock/fabric_choice.h"
#include "tools/penstock/output_files.h"
#include "tools/penstock/precision_option.h"

namespace penstock::tool {

namespace {

constexpr int64_t kMostSamples = 1'000'000'000;

void add_training_options(CLI::App& app, TrainArguments& options) {
  app.add_option("--epochs", options.train.epochs, "Passes over the training set")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--steps", options.train.max_steps, "Stop after this many optimiser steps")
      ->check(whole_number(1));
  app.add_option("--warmup-steps", options.train.warmup_steps,
                 "First steps, which do not count for throughput")
      ->check(whole_number(0))
      ->capture_default_str();
  options.batch_size = app.add_option("--batch-size", options.train.mini_batch_size,
                                      "Samples per optimiser step, over all workers")
                           ->capture_default_str();
  app.add_option("--optimizer", options.train.optimizer.name, "sgd, adam or adamw")
      ->capture_default_str();
  app.add_option("--lr", options.train.learning_rate.base, "Learning rate")->capture_default_str();
  app.add_option("--momentum", options.train.optimizer.momentum, "Momentum of sgd")
      ->capture_default_str();
  app.add_flag("--nesterov", options.train.optimizer.nesterov, "Nesterov momentum for sgd");
  app.add_option("--weight-decay", options.train.optimizer.weight_decay,
                 "Weight decay (L2 penalty)")
      ->capture_default_str();
  app.add_option("--lr-schedule", options.train.learning_rate.schedule,
                 "constant, step, cosine, linear")
      ->capture_default_str();
  app.add_option("--lr-warmup", options.train.learning_rate.warmup_steps,
                 "Steps over which the learning rate rises from near zero")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--lr-factor", options.train.learning_rate.factor,
                 "step: multiply the learning rate by this")
      ->capture_default_str();
  app.add_option("--lr-every", options.train.learning_rate.every,
                 "step: multiply after this many steps")
      ->check(whole_number(1));
  app.add_option("--clip-norm", options.train.max_grad_norm,
                 "Clip the global gradient norm to this value; inf: only record the norm");
  app.add_option("--gradient-groups", options.train.gradient_groups,
                 "flush: sum gradients in this many groups of micro-batches, a multiple of every "
                 "stage's replicas; runs with the same number agree bit for bit, whatever their "
                 "number of workers (default: the smallest number possible)");
  app.add_option("--threads", options.train.threads_per_worker, "Threads per worker")
      ->check(whole_number(1, kMaxThreads))
      ->capture_default_str();
  app.add_option("--device", options.device,
                 "What workers compute on: cpu, cuda (all GPUs), or a list such as cuda:0,cuda:1; "
                 "neighbouring workers share a device where there are more workers")
      ->capture_default_str();
  app.add_flag("--cuda-graphs", options.train.cuda_graphs,
               "On GPUs, give all kernels of a forward or backward pass in one call: faster where "
               "launches take longer than kernels; with one version of the weights (flush, latest, "
               "current), docs/devices.md");
  app.add_option("--deadline", options.deadline_s,
                 "Longest time that a worker may wait, in seconds")
      ->capture_default_str();
  app.add_option("--silence", options.silence_s,
                 "In a job: a rank that has not answered for so many seconds is lost")
      ->capture_default_str();
  app.add_option("--patience", options.patience_s,
                 "In a job: how many seconds ranks wait at the start until all have come")
      ->capture_default_str();
  app.add_option("--fabric", options.fabric,
                 "In a job: what carries large messages between ranks: auto (connections, and the "
                 "memory of the same host), tcp (connections), gloo, mpi (started by mpirun), "
                 "nccl (between GPUs); local refuses a job of several ranks")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint,
                 "Folder for checkpoints: saved after every epoch and when interrupted; one that "
                 "holds a checkpoint needs --resume");
  app.add_flag("--resume", options.train.resume,
               "Continue from the newest checkpoint in the folder; at step 0 where there is none");
  auto* const check = app.add_flag("--check-against-serial", options.check_against_serial,
                                   "Only compare: train a few steps with the plan and without it, "
                                   "and say whether losses and weights are equal");
  app.add_option("--check-steps", options.check_steps, "Steps to compare")
      ->capture_default_str()
      ->needs(check);
  app.get_option("--checkpoint")->excludes(check);
  app.get_option("--resume")->excludes(check);
  app.add_option("--history", options.history,
                 "Write loss, learning rate and gradient norm of every step to this file (JSON)")
      ->excludes(check);
  app.add_option("--html", options.html,
                 "Write an HTML page about the run to this file: timelines, memory, curves; needs "
                 "no network")
      ->excludes(check);
  app.add_option("--trace", options.trace,
                 "Write predicted and measured timelines to this file (Chrome/Perfetto)")
      ->excludes(check);
  app.add_flag("--no-eval", options.no_evaluation, "Do not evaluate on the test set");
  app.add_flag("--no-shuffle", options.no_shuffle, "Keep the order of the data set");
}

}  // namespace

void check_batch_size(const TrainArguments& options) {
  if (options.train.mini_batch_size < 1 || options.train.mini_batch_size > 10'000'000) {
    throw ConfigError(
        fmt::format("the batch size must lie between 1 and 10000000 samples (--batch-size, or that "
                    "of the plan), found {}",
                    options.train.mini_batch_size));
  }
}

void check(const TrainArguments& options) {
  check_batch_size(options);
  if (options.bad_samples != "fatal" && options.bad_samples != "skip") {
    throw ConfigError(
        fmt::format("--bad-samples: expected fatal or skip, found '{}'", options.bad_samples));
  }
  const auto strategy = plan::parse_strategy_choice(options.plan.strategy);
  plan::check_schedule_options(strategy, options.chunks, options.slack, options.keep);
  if (options.sync == "auto" && !options.plan_path.empty())
    throw ConfigError("--sync auto chooses with the plan, and --plan gives one: name a method");
  if (!options.sync.empty()) plan::parse_sync_choice(options.sync);
  const std::string& precision = options.sync_precision;
  if (!precision.empty()) {
    plan::check_sync_precision(options.sync == "asynchronous" ? plan::GradientSync::Asynchronous
                                                              : plan::GradientSync::Ordered,
                               plan::parse_sync_precision(precision));
  }
  const auto devices = parse_option("--device", options.device, cluster::parse_device_names);
  if (options.train.cuda_graphs &&
      std::all_of(devices.begin(), devices.end(),
                  [](const cluster::DeviceName& device) { return device.is_cpu(); })) {
    throw ConfigError(fmt::format(
        "--cuda-graphs: graphs are those of GPUs, and all workers are on the CPU (--device {})",
        options.device));
  }
  const bool by_nccl = parse_fabric(options.fabric) == FabricChoice::Nccl;
  if (by_nccl && std::any_of(devices.begin(), devices.end(),
                             [](const cluster::DeviceName& device) { return device.is_cpu(); })) {
    throw ConfigError(fmt::format(
        "--fabric nccl: NCCL moves the memory of GPUs, and workers are on the CPU (--device {}); "
        "take auto, tcp, gloo or mpi, or a GPU for every worker",
        options.device));
  }
  if (options.deadline_s < 1 || options.deadline_s > 10'000'000) {
    throw ConfigError(fmt::format("--deadline must lie between 1 and 10000000 seconds, found {}",
                                  options.deadline_s));
  }
  const auto check_seconds = [](const char* name, double seconds) {
    if (seconds >= 0.1 && seconds <= 86'400) return;
    throw ConfigError(
        fmt::format("{} must lie between 0.1 and 86400 seconds, found {}", name, seconds));
  };
  check_seconds("--silence", options.silence_s);
  check_seconds("--patience", options.patience_s);
  if (options.plan_path.empty() && strategy && !options.plan.weights.empty() &&
      !supports(*strategy, plan::parse_weight_policy(options.plan.weights))) {
    throw ConfigError(fmt::format("--strategy {} cannot run with --weights {}",
                                  to_string(*strategy), options.plan.weights));
  }
  if (options.check_steps < 1 || options.check_steps > 1'000'000) {
    throw ConfigError(
        fmt::format("--check-steps must lie between 1 and 1000000, found {}", options.check_steps));
  }
  if (options.train.resume && options.checkpoint.empty())
    throw ConfigError("--resume needs --checkpoint DIR to resume from");
  check_outputs(
      {{"--trace", options.trace}, {"--history", options.history}, {"--html", options.html}},
      {{"--plan", options.plan_path},
       {"--profile", options.plan.profile_path},
       {"--model", options.model.name}});
}

std::string plan_request(const TrainArguments& options) {
  if (!options.plan_path.empty()) return fmt::format("--plan {}", options.plan_path);
  const AutoPlanRequest& plan = options.plan;
  std::string text =
      fmt::format("--strategy {} --workers {} --batch-size {} --threads {}", plan.strategy,
                  options.workers, options.train.mini_batch_size, options.train.threads_per_worker);
  const auto add = [&](const char* name, const auto& value, bool given) {
    if (given) text += fmt::format(" {} {}", name, value);
  };
  add("--profile", plan.profile_path, !plan.profile_path.empty());
  add("--weights", plan.weights, !plan.weights.empty());
  add("--micro-batches", plan.micro_batches, plan.micro_batches > 0);
  add("--chunks", options.chunks.value_or(0), options.chunks.has_value());
  add("--slack", options.slack.value_or(0), options.slack.has_value());
  add("--keep", options.keep.value_or(0), options.keep.has_value());
  add("--sync", options.sync, !options.sync.empty());
  add("--sync-precision", options.sync_precision, !options.sync_precision.empty());
  if (plan.shard_optimizer) text += " --shard-optimizer";
  add("--precision", options.precision, !options.precision.empty());
  add("--gradient-groups", options.train.gradient_groups, options.train.gradient_groups > 0);
  add("--clip-norm", options.train.max_grad_norm, options.train.max_grad_norm > 0);
  add("--device", options.device, options.device != "cpu");
  return text;
}

CLI::App* add_train(CLI::App& parent, TrainArguments& options) {
  CLI::App* app = parent.add_subcommand("train", "Train a model through a pipeline");
  add_model_options(*app, options.model);
  app->add_option("--data", options.data, train::data_format_help())->capture_default_str();
  auto* const test_data =
      app->add_option("--test-data", options.test_data,
                      "File or folder with the test samples (default: those of --data, or a part "
                      "of them)");
  app->add_option("--test-share", options.test_share,
                  "The part of a file's samples that is for the test, where it has no others")
      ->capture_default_str()
      ->excludes(test_data);
  app->add_option("--bad-samples", options.bad_samples,
                  "What to do with samples of a file that hold nan, or a token or class that does "
                  "not exist, and with images that cannot be decoded: fatal or skip")
      ->capture_default_str();
  options.data_threads =
      app->add_option("--data-threads", options.train.data_threads,
                      "Threads that decode the next images, or gather the next samples for a GPU, "
                      "while the model computes; 0: none (default: 1, with a GPU up to 4)");
  add_loss_options(*app, options.train.loss);
  app->add_option("--data-folder", options.data_folder,
                  "The data folder of data sets that need one");
  app->add_option("--train-samples", options.train_samples, "Use only the first N training samples")
      ->check(whole_number(1, kMostSamples));
  app->add_option("--test-samples", options.test_samples, "Use only the first N test samples")
      ->check(whole_number(1, kMostSamples));
  auto* plan = app->add_option("--plan", options.plan_path, "Train with this plan (JSON)");
  app->add_option("--strategy", options.plan.strategy,
                  "auto, or one of: " + plan::names_of(plan::training_strategies()))
      ->capture_default_str()
      ->excludes(plan);
  app->add_option(
         "--workers", options.workers,
         "Workers: threads of this process, or of all ranks of a job together (default in a "
         "job: one per rank)")
      ->capture_default_str()
      ->excludes(plan);
  app->add_option("--profile", options.plan.profile_path,
                  "Plan from this profile instead of measuring")
      ->excludes(plan);
  app->add_option("--chunks", options.chunks,
                  "interleaved, interleaved-zb: stages per worker (default: chosen)")
      ->excludes(plan);
  app->add_option("--slack", options.slack,
                  "eager-1f1b: extra micro-batches in flight per later stage, compared with 1F1B "
                  "(default: chosen)")
      ->excludes(plan);
  app->add_option("--keep", options.keep,
                  "zb-auto, zb-auto-v: micro-batches that a worker keeps at most from F to W, "
                  "summed over its stages (default: 2p-1 and 2p)")
      ->excludes(plan);
  app->add_option("--weights", options.plan.weights,
                  "Weight policy: flush, stash, vertical-sync, 2bw, latest, current");
  app->add_option(
      "--sync", options.sync,
      "How replicas on several ranks sum their gradients: ordered, ring, "
      "parameter-server, summation, hierarchical (first inside each machine), or auto: the "
      "fastest of these that was predicted, or an earlier one that is within 0.5 % of it (default: "
      "the plan's, or ordered; ring and "
      "hierarchical change results by rounding); "
      "asynchronous: replicas, also those of one rank, do not wait for each other");
  app->add_option("--sync-precision", options.sync_precision,
                  "Numbers in which gradients travel between replicas: float32, bfloat16, float16 "
                  "(default: the plan's, or float32). 16 bits are half of the bytes; every rank "
                  "rounds alike, so results do not depend on the number of ranks");
  app->add_flag("--shard-optimizer", options.plan.shard_optimizer,
                "Share out the optimiser's state over the replicas of each stage (ZeRO-1): each "
                "keeps and steps its share of the weights. The same results (default: the plan's)");
  add_precision(*app, options.precision,
                "Numbers in which the model computes (default: the plan's, or float32)");
  app->add_option("--staleness", options.train.staleness,
                  "asynchronous: how many steps a replica may be ahead of the slowest one")
      ->capture_default_str();
  app->add_option("--micro-batches", options.plan.micro_batches,
                  "Micro-batches per optimiser step (default: the strategy's own)")
      ->check(whole_number(1));
  add_training_options(*app, options);
  add_common(*app, options);
  return app;
}

}  // namespace penstock::tool
