#include "penstock/runtime/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "penstock/graph/model_graph.h"
#include "penstock/runtime/device/device_links.h"
#include "penstock/runtime/pipeline_state.h"
#include "penstock/runtime/run.h"
#include "penstock/runtime/run_checks.h"
#include "penstock/runtime/run_workers.h"
#include "penstock/runtime/schedule_fit.h"
#include "penstock/runtime/stage_worker.h"
#include "penstock/runtime/stages.h"
#include "penstock/runtime/whole_layers.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

using schedule::Schedule;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kServing{24 * 365};

std::vector<std::unique_ptr<StageWorker>> make_workers(const Stages& stages, const Run& run,
                                                       Fabric& fabric) {
  const WorkerOptions options{.threads = stages.options.threads_per_worker,
                              .deadline = stages.options.deadline};
  std::vector<std::unique_ptr<StageWorker>> workers;
  for (const WorkerId worker : stages.world->site().own_workers()) {
    const std::vector<Replica*>& held = stages.held_by[worker.index()];
    for (Replica* replica : held) replica->weights.begin_run();
    workers.push_back(std::make_unique<StageWorker>(worker, held, run, fabric, options));
  }
  return workers;
}

RunResult result_of(const Run& run, RunOutcome outcome, Clock::duration wall,
                    const std::vector<std::unique_ptr<StageWorker>>& workers, int64_t origin_ns) {
  const size_t num_workers = run.schedule().workers.size();
  RunResult result;
  result.wall_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count();
  result.mini_batches = std::move(outcome.mini_batches);
  result.timeline.source = "measured";
  result.timeline.workers.resize(num_workers);
  result.peak_versions.resize(num_workers);
  const auto since_origin = [origin_ns](auto& events) {
    for (auto& event : events) {
      event.start_ns -= origin_ns;
      event.end_ns -= origin_ns;
    }
  };
  for (const auto& worker : workers) {
    auto& events = result.timeline.workers[worker->id().index()] = worker->take_events();
    since_origin(events);
    schedule::SumLane lane{.worker = worker->id(), .events = worker->sum_events()};
    since_origin(lane.events);
    if (!lane.events.empty()) result.timeline.sums.push_back(std::move(lane));
    result.waiting_ns += worker->waiting_ns();
    result.peak_versions[worker->id().index()] = worker->peak_versions();
  }
  return result;
}

/// After a failure links are of no use any more: the next run makes new ones, on all ranks.
struct DropLinks {
  std::unique_ptr<DeviceLinks>& links;
  bool keep = false;
  ~DropLinks() {
    if (!keep) links.reset();
  }
};

}  // namespace

/// What lasts from run to run beside the stages.
struct Pipeline::Running {
  Handover handover;
  WorkerThreads threads;  ///< of this rank's workers
};

Pipeline::Pipeline(const model::Model& model, std::vector<StageId> stage_of_layer,
                   std::vector<int> replicas, const model::Optimizer& optimizer,
                   const PipelineOptions& options)
    : stages_(std::make_unique<Stages>(model, std::move(stage_of_layer), std::move(replicas),
                                       optimizer, options)),
      running_(std::make_unique<Running>()) {}

Pipeline::~Pipeline() = default;

World& Pipeline::world() const { return *stages_->world; }

int64_t Pipeline::gradient_groups() const { return stages_->gradient_groups; }

bool Pipeline::holds(LayerId layer) const { return holds_part(*stages_, layer); }

bool Pipeline::needs_norm() const { return !stages_->ties.groups.empty(); }

std::vector<std::string> Pipeline::kinds_in_float32() const {
  std::set<std::string> kinds;
  for (size_t l = 0; l < stages_->precisions.size(); ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    const model::Layer& layer = stages_->model.layer(id);
    if (!stages_->precisions[l].computes_in_float32 || !stages_->holds(id) ||
        model::insists_on_float32(layer))
      continue;
    kinds.insert(layer.kind());
  }
  return {kinds.begin(), kinds.end()};
}

std::vector<std::string> Pipeline::graph_obstacles() const {
  std::vector<std::string> obstacles;
  for (const auto& own : stages_->replicas) {
    for (const auto& replica : own) {
      if (replica->graphs == nullptr || replica->graphs->obstacle().empty()) continue;
      const StageId stage = stages_->teams[replica->module->stage().index()].whole;
      std::string text = fmt::format("stage {}: {}", stage.value, replica->graphs->obstacle());
      if (obstacles.empty() || obstacles.back() != text) obstacles.push_back(std::move(text));
      break;
    }
  }
  return obstacles;
}

std::vector<at::Device> Pipeline::gpus() const {
  std::set<c10::DeviceIndex> indices;
  for (const auto& device : stages_->devices) {
    if (device && !device->is_host()) indices.insert(device->device().index());
  }
  std::vector<at::Device> gpus;
  for (const c10::DeviceIndex index : indices) gpus.emplace_back(at::kCUDA, index);
  return gpus;
}

std::vector<schedule::StageLink> Pipeline::links() const {
  std::set<schedule::StageLink> links;
  for (const auto& cross : graph::crossing_values(stages_->model.graph(), stages_->stage_of_layer))
    links.insert({cross.from, cross.to});
  return {links.begin(), links.end()};
}

std::vector<LayerSnapshot> Pipeline::snapshot() const {
  return PipelineState(*stages_, steps_).snapshot();
}

std::vector<model::Tensors> Pipeline::carried(int64_t places) const {
  return PipelineState(*stages_, steps_).carried(places);
}

void Pipeline::forget_carried() {
  for (const auto& own : stages_->replicas) {
    for (const auto& replica : own) replica->carried.clear();
  }
}

void Pipeline::load_carried(const std::vector<model::Tensors>& layers,
                            const std::vector<int64_t>& samples) {
  PipelineState(*stages_, steps_).load_carried(layers, samples);
}

std::vector<std::string> Pipeline::state_names() const { return stages_->state_names(); }

bool Pipeline::has_rounds() const { return stages_->has_rounds(); }

void Pipeline::exchange_averages() { PipelineState(*stages_, steps_).exchange_averages(); }

void Pipeline::show_rounds() { PipelineState(*stages_, steps_).show_rounds(); }

void Pipeline::hide_rounds() { PipelineState(*stages_, steps_).hide_rounds(); }

void Pipeline::average_buffers() { PipelineState(*stages_, steps_).average_buffers(); }

std::map<LayerId, LayerSnapshot> Pipeline::copy_of_stage(StageId stage) const {
  return PipelineState(*stages_, steps_).copy_of_stage(stage);
}

void Pipeline::load(const std::vector<LayerSnapshot>& layers, int64_t steps) {
  PipelineState(*stages_, steps_).load(layers);
  steps_ = steps;
  is_torn_ = false;
  loss_scale_ = {};
}

RunResult Pipeline::run(const Schedule& schedule, const BatchSource& source,
                        const RunOptions& options) {
  return run({.schedule = schedule, .source = source, .options = options});
}

RunResult Pipeline::run_endless(const schedule::EndlessSchedule& schedule, BatchSource& source,
                                const RunOptions& options) {
  check_endless(*stages_, schedule);
  return run({.schedule = schedule.sample,
              .source = source,
              .options = options,
              .endless = &schedule.lists,
              .stream = &source});
}

void Pipeline::open_links(const Schedule& schedule) {
  if (!world().has_links()) return;
  std::unique_ptr<DeviceLinks>& links = running_->handover.links;
  if (!links) links = std::make_unique<DeviceLinks>(world());
  std::vector<StageId> exchange;
  for (size_t s = 0; s < stages_->size(); ++s) {
    if (trains(schedule) && stages_->sums_on_gpus(s))
      exchange.push_back(StageId{static_cast<int32_t>(s)});
  }
  links->open(schedule, stages_->devices, exchange, stages_->options.deadline);
}

void Pipeline::count_steps(const std::vector<std::unique_ptr<StageWorker>>& workers) {
  std::optional<int64_t> made;
  for (const auto& own : stages_->replicas) {
    for (const auto& replica : own) {
      const std::optional<int64_t> steps = replica->weights.steps_made();
      is_torn_ = is_torn_ || !steps || made.value_or(*steps) != *steps;
      made = steps;
    }
  }
  // Other replicas' steps, or an outer one, may be missing.
  is_torn_ = is_torn_ || steps_alone(stages_->options.sync);
  const LossScale* first = nullptr;
  for (const auto& worker : workers) {
    const LossScale* const scale = worker->loss_scale();
    if (scale == nullptr) continue;
    if (first == nullptr) first = scale;
    is_torn_ = is_torn_ || scale->state() != first->state();
  }
  if (is_torn_) return;
  steps_ += made.value_or(0);
  if (first != nullptr) loss_scale_ = first->state();
}

RunResult Pipeline::run(const RunRequest& request) {
  if (is_torn_) {
    throw RuntimeError(
        "the run before has failed when some stages had made a step that others had not: expected "
        "a checkpoint to be loaded first");
  }
  check_run(*stages_, links(), request.schedule, request.options);
  DropLinks drop_links{running_->handover.links};
  open_links(request.schedule);
  const std::chrono::milliseconds deadline = stages_->options.deadline;
  Wait opening = wait_for(deadline);
  running_->handover.ready.clear();
  const Run run = make_run(*stages_, running_->handover, request, steps_, loss_scale_);
  const std::unique_ptr<Fabric> fabric = world().open(run.setup, opening);
  std::optional<LinkWatch> link_watch;
  if (run.devices.links != nullptr) link_watch.emplace(*run.devices.links, *fabric);
  const std::vector<std::unique_ptr<StageWorker>> workers = make_workers(*stages_, run, *fabric);
  const Clock::time_point start = Clock::now();
  Clock::duration wall{};
  RunOutcome outcome;
  try {
    run_workers(workers, running_->threads, *fabric, request.options);
    wall = Clock::now() - start;
    // A rank without workers adds gradients as long as the others train.
    Wait closing = workers.empty() ? wait_for(kServing) : wait_for(deadline);
    outcome = fabric->finish(closing);
  } catch (...) {
    if (run.training) count_steps(workers);
    throw;
  }
  drop_links.keep = true;
  // A mini-batch is an optimiser step at every stage.
  if (run.training) steps_ += outcome.num_mini_batches;
  RunResult result = result_of(run, std::move(outcome), wall, workers, fabric->origin_ns());
  // All workers have the same.
  for (const auto& worker : workers) {
    if (worker->loss_scale() != nullptr) loss_scale_ = worker->loss_scale()->state();
  }
  result.skipped_steps = loss_scale_.skipped - run.loss_scale.skipped;
  return result;
}

}  // namespace penstock::runtime
