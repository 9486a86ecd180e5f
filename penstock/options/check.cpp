#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/cluster/device_name.h"
#include "penstock/options/optimizer_text.h"
#include "penstock/options/profile_request.h"
#include "penstock/options/request.h"
#include "penstock/options/stream_request.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/train/compensated_optimizer.h"
#include "penstock/train/rate_schedules.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::options {

namespace {

void check_range(const char* option, double value, double least, double most,
                 const char* unit = "") {
  if (value >= least && value <= most) return;
  throw ConfigError(fmt::format("{} must lie between {} and {:.0f}{}, found {}", option, least,
                                most, unit, value));
}

void check_plan(const PlanSection& plan) {
  plan::check_schedule_options(plan.strategy, plan.chunks, plan.slack, plan.keep);
  if (plan.sync && !plan.sync->method && !plan.file.empty())
    throw ConfigError("--sync auto chooses with the plan, and --plan gives one: name a method");
  if (plan.gradient_precision) {
    const bool is_asynchronous = plan.sync && plan.sync->is(plan::GradientSync::Asynchronous);
    plan::check_sync_precision(
        is_asynchronous ? plan::GradientSync::Asynchronous : plan::GradientSync::Ordered,
        *plan.gradient_precision);
  }
  if (plan.compensation && plan.weights) {
    const std::string refusal = compensation_refusal(*plan.compensation, *plan.weights);
    if (!refusal.empty()) throw ConfigError("--compensate: " + refusal);
  }
  if (plan.file.empty() && plan.strategy && plan.weights &&
      !supports(*plan.strategy, *plan.weights)) {
    throw ConfigError(fmt::format("--strategy {} cannot run with --weights {}",
                                  to_string(*plan.strategy), to_string(*plan.weights)));
  }
}

void check_devices(const RunRequest& run) {
  std::vector<cluster::DeviceName> devices;
  try {
    devices = cluster::parse_device_names(run.device);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("--device {}", error.what()));
  }
  const auto is_cpu = [](const cluster::DeviceName& device) { return device.is_cpu(); };
  if (run.device_graphs && std::all_of(devices.begin(), devices.end(), is_cpu)) {
    throw ConfigError(fmt::format(
        "--cuda-graphs: graphs are those of GPUs, and all workers are on the CPU (--device {})",
        run.device));
  }
  if (run.fabric == net::FabricKind::Nccl && std::any_of(devices.begin(), devices.end(), is_cpu)) {
    throw ConfigError(fmt::format(
        "--fabric nccl: NCCL moves the memory of GPUs, and workers are on the CPU (--device {}); "
        "take auto, tcp, gloo or mpi, or a GPU for every worker",
        run.device));
  }
}

}  // namespace

void check_batch_size(int64_t batch_size) {
  if (batch_size >= 1 && batch_size <= 10'000'000) return;
  throw ConfigError(
      fmt::format("the batch size must lie between 1 and 10000000 samples (--batch-size, or that "
                  "of the plan), found {}",
                  batch_size));
}

void check(const TrainRequest& request) {
  const RunRequest& run = request.run;
  check_batch_size(run.batch_size.value_or(kUsualBatchSize));
  check_plan(request.plan);
  if (request.plan.compensation)
    train::compensated_optimizer(request.optimizer, *request.plan.compensation);
  check_devices(run);
  if (run.deadline_s < 1 || run.deadline_s > 10'000'000) {
    throw ConfigError(fmt::format("--deadline must lie between 1 and 10000000 seconds, found {}",
                                  run.deadline_s));
  }
  check_range("--silence", run.silence_s, 0.1, 86'400, " seconds");
  check_range("--patience", run.patience_s, 0.1, 86'400, " seconds");
  if (run.check_steps < 1 || run.check_steps > 1'000'000) {
    throw ConfigError(
        fmt::format("--check-steps must lie between 1 and 1000000, found {}", run.check_steps));
  }
  if (run.resume && run.checkpoint.empty())
    throw ConfigError("--resume needs --checkpoint DIR to resume from");
  const std::string& schedule = request.rates.schedule;
  if (schedule.starts_with(train::kPlateauName) && !request.data.evaluate) {
    throw ConfigError(
        fmt::format("--lr-schedule {} follows evaluations, and --no-eval makes none", schedule));
  }
  if (request.large_batch.rules && !request.plan.file.empty() && !run.batch_size)
    throw ConfigError("--large-batch with --plan needs --batch-size, which the rate follows");
}

void check(const StreamRequest& request) {
  const StreamPlanSection& plan = request.plan;
  const StreamRunRequest& run = request.run;
  if (!takes(request.optimizer.kind, &model::OptimizerSpec::momentum) &&
      request.optimizer.momentum != 0)
    throw ConfigError(fmt::format("--momentum is for {}; --optimizer {} has its own",
                                  optimizers_with_momentum(), to_string(request.optimizer.kind)));
  if (traits(plan.strategy).extent == plan::Extent::OneWorker &&
      (plan.weights || plan.workers.value_or(1) > 1)) {
    throw ConfigError(
        fmt::format("--strategy {} is one worker without delay: {} has no meaning there",
                    to_string(plan.strategy), plan.weights ? "--weights" : "--workers"));
  }
  if (!std::isfinite(request.learning_rate) || request.learning_rate < 0) {
    throw ConfigError(
        fmt::format("--lr must be a number of at least 0, found {}", request.learning_rate));
  }
  if ((run.resume || run.save_every_s > 0) && run.checkpoint.empty()) {
    throw ConfigError(
        fmt::format("{} needs --checkpoint DIR", run.resume ? "--resume" : "--save-every"));
  }
  const SourceRequest& source = request.source;
  if (!source.labels.empty() && (source.repeat || source.label_every)) {
    throw ConfigError(
        fmt::format("--labels names each frame of one pass: it cannot be combined "
                    "with {}",
                    source.repeat ? "--repeat" : "--label-every"));
  }
  if (!source.labels.empty() && request.task.value_or(frames::Task::Label) != frames::Task::Label) {
    throw ConfigError(
        fmt::format("--labels gives the classes of whole frames: expected --task "
                    "label, found {}",
                    to_string(*request.task)));
  }
  if (request.source.keep_all && request.source.name.starts_with("camera:"))
    throw ConfigError("--keep-all: a camera does not wait; without it late frames are dropped");
}

void check(const ProfileRequest& request) {
  const MeasureRequest& run = request.run;
  if (run.analytic && run.device.empty())
    throw ConfigError("--analytic needs --device: a name of --list-devices, or a TOML file");
  if (run.analytic || run.device.empty()) return;
  try {
    if (cluster::parse_device_names(run.device).size() == 1) return;
  } catch (const ConfigError&) {
  }
  throw ConfigError(
      fmt::format("--device: expected cpu or a GPU such as cuda:0, found '{}'; what other devices "
                  "would take is estimated with --analytic",
                  printable(run.device)));
}

}  // namespace penstock::options
