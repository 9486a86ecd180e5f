#include "penstock/train/serial_check.h"

#include <ATen/Functions.h>
#include <c10/core/Device.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "penstock/model/device/same_results.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/plan/boundaries.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/plan/weight_rules.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/runtime/ranks.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/train/serial_replay.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/common_multiple.h"

namespace penstock::train {

namespace {

/// Sums in another order differ in the last bits, and every step increases the difference.
constexpr double kTolerance = 1e-4;
/// Where such a difference decides how a number of 16 bits is rounded.
constexpr double kShortTolerance = 1e-2;

double relative_difference(double a, double b) {
  if (a == b) return 0;
  // Norms of a step that float16 leaves out.
  if (!std::isfinite(a) && !std::isfinite(b)) return 0;
  const double scale = std::max(std::abs(a), std::abs(b));
  const double difference = std::abs(a - b) / scale;
  return std::isfinite(difference) ? difference : INFINITY;
}

bool same_weight(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  if (tolerance == 0) return at::equal(a, b);
  const double scale = std::max(a.abs().max().item<double>(), b.abs().max().item<double>());
  return (a - b).abs().max().item<double>() <= tolerance * scale;
}

void compare_numbers(const std::vector<double>& ours, const std::vector<double>& theirs,
                     SerialCheck& check) {
  if (ours.size() != theirs.size()) {
    throw RuntimeError(
        fmt::format("the reference made {} steps, the pipeline {}", theirs.size(), ours.size()));
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = relative_difference(ours[i], theirs[i]);
    const auto step = static_cast<int64_t>(i);
    if (difference > check.tolerance &&
        (check.first_difference < 0 || step < check.first_difference))
      check.first_difference = step;
  }
}

void compare_weights(const model::Model& model, const std::vector<model::Tensors>& ours,
                     const std::vector<model::Tensors>& theirs, SerialCheck& check) {
  for (size_t l = 0; l < ours.size(); ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    const std::vector<model::ParameterSpec> specs = model.layer(id).parameters();
    for (size_t w = 0; w < ours[l].size(); ++w) {
      if (same_weight(ours[l][w], theirs[l][w], check.tolerance)) continue;
      check.first_weight = model.graph().layer(id).name + "." + specs[w].name;
      return;
    }
  }
}

plan::Plan on_one_worker(const plan::Plan& plan, const model::Model& model) {
  plan::Plan serial;
  serial.model = plan.model;
  serial.strategy = plan::Strategy::Serial;
  serial.weights = plan::WeightPolicy::Flush;
  serial.micro_batch_size = plan.micro_batch_size;
  serial.micro_batches = plan.micro_batches;
  serial.gradient_precision = plan.gradient_precision;
  serial.precision = plan.precision;
  serial.stages.resize(1);
  for (const graph::LayerNode& layer : model.graph().layers())
    serial.stages[0].layers.push_back(layer.name);
  return serial;
}

/// The same stages and codings, one after the other on one worker, which hands over to itself what
/// others would send.
plan::Plan coded_on_one_worker(const plan::Plan& plan) {
  plan::Plan serial = plan;
  serial.strategy = plan::Strategy::Interleaved;
  serial.slack = 0;
  serial.cluster = cluster::local_cluster(1, 1);
  serial.worker_of_replica.assign(plan.stages.size(), 0);
  for (plan::Stage& stage : serial.stages) {
    plan::Stage alone{.layers = std::move(stage.layers)};
    stage = std::move(alone);
  }
  return serial;
}

bool is_coded(const plan::Plan& plan) { return !plan::boundaries_text(plan).empty(); }

/// The layers of replicated stages, whose gradients are rounded where they travel in 16 bits.
std::vector<bool> replicated_layers(const plan::Plan& plan, const model::Model& model) {
  std::vector<bool> layers;
  for (const StageId stage : plan::stage_of_layer(plan, model.graph()))
    layers.push_back(plan.stages[stage.index()].replicas > 1);
  return layers;
}

/// The smallest number of groups that every stage's number of replicas divides.
int64_t common_groups(const plan::Plan& plan) {
  constexpr int64_t kMost = 1'000'000;
  if (const auto groups = common_multiple(plan.replicas(), kMost)) return *groups;
  throw ConfigError(
      fmt::format("the replicas {} of the plan's stages have no common multiple up to {}: one "
                  "worker cannot sum gradients in the same order",
                  plan.config(), kMost));
}

/// R runs the forward pass with the newest version: the gradient belongs to activations that no
/// forward pass computed.
void refuse_unreplayable(const plan::Plan& plan, schedule::WeightPolicy policy) {
  const plan::WeightPolicyTraits& row = traits(policy);
  if (row.newest_only) {
    throw ConfigError(fmt::format(
        "under weights {} a backward pass goes through another micro-batch than its gradient's, "
        "which no run without stages can replay: expected another weight policy",
        row.name));
  }
  if (!row.backward_reads_newest) return;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (!plan.stages[s].recompute) continue;
    throw ConfigError(fmt::format(
        "under weights {}, stage {} recomputes its activations with other weights than its "
        "forward pass had, which no reference run can replay: expected a plan without "
        "recomputation, or another weight policy",
        row.name, s));
  }
}

/// Whether the ranks add gradients in another order than one worker does: those of a stage whose
/// replicas are on several of them.
bool adds_in_another_order(const TrainOptions& options) {
  const plan::GradientSync sync = options.plan.sync;
  if (options.world == nullptr ||
      (sync != plan::GradientSync::Ring && sync != plan::GradientSync::Hierarchical))
    return false;
  const std::vector<int>& ranks = options.world->site().rank_of_worker;
  const schedule::WorkerTable table(
      {.replicas = options.plan.replicas(), .worker_of_replica = options.plan.worker_of_replica});
  for (int32_t s = 0; s < static_cast<int32_t>(options.plan.stages.size()); ++s) {
    const StageId stage{s};
    const auto rank_of = [&](int replica) {
      return ranks[table.worker_of_replica(stage, replica).index()];
    };
    for (int k = 1; k < table.replicas(stage); ++k) {
      if (rank_of(k) != rank_of(0)) return true;
    }
  }
  return false;
}

/// Those of this rank's workers; empty: the CPU.
std::vector<std::string> devices_of(const TrainOptions& options) {
  if (options.world == nullptr) return options.device_of_worker;
  const runtime::Site& site = options.world->site();
  std::vector<std::string> devices;
  if (site.device_of_worker.empty()) return devices;
  for (const WorkerId worker : site.own_workers())
    devices.push_back(site.device_of_worker[worker.index()].str());
  return devices;
}

/// Where the one worker of the reference computes: where this rank's first one does.
std::vector<std::string> reference_device(const TrainOptions& options) {
  std::vector<std::string> devices = devices_of(options);
  if (!devices.empty()) devices.resize(1);
  return devices;
}

/// Whether the reference computes on another kind of device than some worker, as far as this rank
/// knows.
bool has_several_kinds(const TrainOptions& options) {
  const std::vector<std::string> devices = devices_of(options);
  return std::any_of(devices.begin(), devices.end(), [&](const std::string& device) {
    return at::Device(device).type() != at::Device(devices.front()).type();
  });
}

TrainResult run(const model::Model& model, const DataSplit& data, const TrainOptions& options) {
  TrainResult result = train(model, data, options);
  if (result.interrupted)
    throw RuntimeError(fmt::format("interrupted after {} steps: nothing compared", result.steps));
  return result;
}

/// Whether copies of the pipeline step by themselves, as no single worker does.
bool trains_in_rounds(const plan::Plan& plan) {
  return plan.sync == plan::GradientSync::DiLoCo && plan.stages.front().replicas > 1;
}

/// Whether replicas add factors of their gradients, as no single worker does.
bool sums_factors(const plan::Plan& plan) {
  return plan.sync == plan::GradientSync::PowerSgd &&
         plan.replicas() != std::vector<int>(plan.stages.size(), 1);
}

/// Whether one worker does the same with the same micro-batches.
bool has_serial_run(const plan::Plan& plan) {
  return traits(plan.weights).drains && !trains_in_rounds(plan) && !sums_factors(plan);
}

std::string replay_text(const plan::Plan& plan) {
  if (trains_in_rounds(plan)) {
    return fmt::format(
        "one thread that makes the steps of each of {} copies of the pipeline, and the outer ones",
        plan.stages.front().replicas);
  }
  std::string text = "one thread that replays the same weight delays";
  if (!sums_factors(plan)) return text;
  const std::string factors =
      fmt::format("factors of rank {} of each replica's gradients", plan.sync_rank);
  return traits(plan.weights).drains ? fmt::format("one thread that sums the {}", factors)
                                     : fmt::format("{} and sums the {}", text, factors);
}

/// Of the same training with messages as they are: on one worker, or in one thread.
std::vector<double> losses_without_codings(const model::Model& model, const DataSplit& data,
                                           const TrainOptions& options, TrainOptions own) {
  own.plan = options.plan;
  plan::set_boundaries(own.plan, {});
  if (has_serial_run(options.plan)) {
    own.plan = on_one_worker(own.plan, model);
    return run(model, data, own).losses;
  }
  for (plan::Stage& stage : own.plan.stages) stage.tensor = 1;
  return replay_serially(model, data, own).losses;
}

}  // namespace

double SerialCheck::loss_above_uncoded() const {
  if (uncoded_losses.empty() || uncoded_losses.size() != losses.size()) return 0;
  const double uncoded = std::accumulate(uncoded_losses.begin(), uncoded_losses.end(), 0.0);
  return std::accumulate(losses.begin(), losses.end(), 0.0) / uncoded - 1;
}

SerialCheck check_against_serial(const model::Model& model, const DataSplit& data,
                                 const TrainOptions& options, int64_t steps) {
  if (options.plan.sync == plan::GradientSync::Asynchronous) {
    throw ConfigError(
        "asynchronous synchronisation depends on timing: there is no serial run to compare it "
        "with");
  }
  if (steps < 1)
    throw ConfigError(
        fmt::format("the number of steps to check must be at least 1, found {}", steps));
  check_trainable(model, data, options);
  const schedule::ScheduleShape shape = schedule::shape_of(options.plan, 1);
  refuse_unreplayable(options.plan, shape.policy);
  TrainOptions run_options = options;
  run_options.checkpoint.clear();
  run_options.resume = false;
  run_options.evaluate = false;
  run_options.observer = nullptr;
  run_options.warmup_steps = 0;
  run_options.keep_weights = true;
  run_options.max_steps = options.max_steps > 0 ? std::min(options.max_steps, steps) : steps;

  const std::vector<std::string> devices = devices_of(options);
  std::optional<model::SameResults> same_results;
  if (std::any_of(devices.begin(), devices.end(),
                  [](const std::string& device) { return at::Device(device).is_cuda(); }))
    same_results.emplace();

  const bool is_first = runtime::Ranks{.world = options.world}.is_first();
  const bool has_teams = !options.plan.teams().empty();
  SerialCheck check;
  check.compares_weights = !has_teams || model::traits(options.optimizer.kind).steps_add_up;
  TrainResult result;
  std::vector<model::Tensors> reference_weights;
  const bool codes = is_coded(options.plan);
  const double tolerance =
      options.plan.precision == Precision::Float32 && !codes ? kTolerance : kShortTolerance;
  if (has_serial_run(options.plan)) {
    check.reference = codes ? "one worker with the same micro-batches and coded boundaries"
                            : "one worker with the same micro-batches";
    if (has_several_kinds(options)) check.tolerance = tolerance;
    if (has_teams) {
      check.reference += ", which adds in another order than teams";
      check.tolerance = tolerance;
    } else if (adds_in_another_order(options)) {
      check.reference +=
          fmt::format(", which adds in another order than {}", to_string(options.plan.sync));
      check.tolerance = tolerance;
    }
    if (run_options.gradient_groups == 0) run_options.gradient_groups = common_groups(options.plan);
    result = run(model, data, run_options);
    if (!is_first) return check;
    run_options.device_of_worker = reference_device(options);
    run_options.device_graphs = false;
    run_options.world = nullptr;
    run_options.plan =
        codes ? coded_on_one_worker(options.plan) : on_one_worker(options.plan, model);
    run_options.rounded_layers = replicated_layers(options.plan, model);
    TrainResult serial = run(model, data, run_options);
    check.reference_losses = std::move(serial.losses);
    check.reference_grad_norms = std::move(serial.grad_norms);
    reference_weights = std::move(serial.weights);
  } else {
    check.reference = replay_text(options.plan);
    check.tolerance = tolerance;
    result = run(model, data, run_options);
    if (!is_first) return check;
    run_options.world = nullptr;
    for (plan::Stage& stage : run_options.plan.stages) stage.tensor = 1;
    Replay replay = replay_serially(model, data, run_options);
    check.reference_losses = std::move(replay.losses);
    check.reference_grad_norms = std::move(replay.grad_norms);
    reference_weights = std::move(replay.weights);
  }
  if (codes) check.uncoded_losses = losses_without_codings(model, data, options, run_options);
  check.losses = std::move(result.losses);
  check.grad_norms = std::move(result.grad_norms);
  compare_numbers(check.losses, check.reference_losses, check);
  // Where stages share weights the pipeline always computes the norm; one worker does not.
  if (check.reference_grad_norms.empty()) check.grad_norms.clear();
  compare_numbers(check.grad_norms, check.reference_grad_norms, check);
  for (size_t i = 0; i < check.losses.size(); ++i) {
    check.largest_difference = std::max(
        check.largest_difference, relative_difference(check.losses[i], check.reference_losses[i]));
  }
  if (check.compares_weights) compare_weights(model, result.weights, reference_weights, check);
  return check;
}

}  // namespace penstock::train
