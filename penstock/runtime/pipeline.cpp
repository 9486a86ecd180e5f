#include "penstock/runtime/pipeline.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "penstock/model/device/copies.h"
#include "penstock/net/wire.h"
#include "penstock/runtime/device/device_links.h"
#include "penstock/runtime/device/device_sum.h"
#include "penstock/runtime/device/replica_exchange.h"
#include "penstock/runtime/fabric/local/local_world.h"
#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/runtime/run_context.h"
#include "penstock/runtime/run_workers.h"
#include "penstock/runtime/schedule_fit.h"
#include "penstock/runtime/stage_worker.h"
#include "penstock/util/check.h"
#include "penstock/util/common_multiple.h"

namespace penstock::runtime {

using schedule::Schedule;

/// Every rank has the modules of all stages (they hold no weights) and the replicas of its own
/// workers.
struct Pipeline::Stages {
  std::vector<std::unique_ptr<StageModule>> modules;
  TiedWeights ties;
  std::vector<std::unique_ptr<WorkerDevice>> devices;  ///< by worker; null for those of other ranks
  ReadyBoard ready;
  std::unique_ptr<DeviceLinks> links;                           ///< null: none
  bool has_gpu = false;                                         ///< a worker of this rank has one
  std::vector<std::vector<std::unique_ptr<Replica>>> replicas;  ///< by stage: those of this rank
  std::vector<std::vector<Replica*>> held_by;                   ///< by worker, ascending by stage
  WorkerThreads threads;                                        ///< of this rank's workers
};

namespace {

model::Tensors initial_weights(const model::Model& model, const StageModule& module,
                               uint64_t seed) {
  model::Tensors all;
  for (const LayerId id : module.layers()) {
    for (at::Tensor& tensor : model.initial_weights(id, seed)) all.push_back(std::move(tensor));
  }
  return all;
}

model::Tensors initial_buffers(const model::Model& model, const StageModule& module) {
  model::Tensors all;
  for (const LayerId id : module.layers()) {
    for (at::Tensor& tensor : model.initial_buffers(id)) all.push_back(std::move(tensor));
  }
  return all;
}

/// Of each weight of the stage; empty: none of its own.
std::vector<const model::Optimizer*> optimizers_of(const model::Model& model,
                                                   const StageModule& module,
                                                   const model::ParameterOptimizers* single) {
  std::vector<const model::Optimizer*> result;
  if (single == nullptr) return result;
  for (const LayerId id : module.layers()) {
    const auto count = static_cast<int>(model.layer(id).parameters().size());
    for (int p = 0; p < count; ++p) result.push_back(&single->of({id, p}));
  }
  return result;
}

StageWeights weights_of(const StageModule& module) {
  const std::vector<size_t>& offsets = module.weight_offsets();
  return {module.weight_shapes(), {offsets.begin() + 1, offsets.end()}};
}

constexpr std::chrono::hours kServing{24 * 365};

model::Tensors detached(model::Tensors tensors) {
  for (at::Tensor& tensor : tensors) tensor = tensor.detach();
  return tensors;
}

int64_t choose_groups(const std::vector<int>& replicas, int64_t wanted) {
  const int64_t common = common_multiple(replicas).value_or(INT64_MAX);
  if (wanted == 0) return common;
  if (wanted < 0 || wanted % common != 0) {
    throw ConfigError(
        fmt::format("the number of gradient groups must be a multiple of every stage's replicas, "
                    "that is of {}, found {}",
                    common, wanted));
  }
  return wanted;
}

void check_sharding(const PipelineOptions& options, size_t stages) {
  const std::vector<bool>& shard = options.shard_optimizer;
  if (!shard.empty() && shard.size() != stages) {
    throw ConfigError(fmt::format(
        "sharding of the optimiser's state has {} entries, expected one for each of the {} stages",
        shard.size(), stages));
  }
  if (std::find(shard.begin(), shard.end(), true) == shard.end()) return;
  if (options.sync == plan::GradientSync::Asynchronous) {
    throw ConfigError(
        "the optimiser's state cannot be shared out over replicas that sum asynchronously: each of "
        "them steps all weights by itself; choose another --sync, or leave out --shard-optimizer");
  }
  if (options.precision != Precision::Float32) {
    throw ConfigError(fmt::format(
        "the optimiser's state is shared out only where the model computes in float32, found {}; "
        "leave out --precision or --shard-optimizer",
        to_string(options.precision)));
  }
}

/// The workers of the replicas, spelled out.
std::vector<int> spelled_out(const std::vector<int>& worker_of_replica,
                             const std::vector<int>& replicas) {
  if (!worker_of_replica.empty()) return worker_of_replica;
  std::vector<int> result(
      static_cast<size_t>(std::accumulate(replicas.begin(), replicas.end(), 0)));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

/// By micro-batch, the version of the weights that the stage with the loss reads in F.
std::vector<int64_t> loss_versions(const Schedule& schedule, StageId loss_stage) {
  std::vector<int64_t> versions(static_cast<size_t>(schedule.shape.micro_batches), 0);
  for (const auto& actions : schedule.workers) {
    for (const schedule::Action& action : actions) {
      if (action.op == schedule::Op::Forward && action.stage == loss_stage)
        versions[action.micro_batch.index()] = action.version.value;
    }
  }
  return versions;
}

}  // namespace

Pipeline::Pipeline(const model::Model& model, std::vector<StageId> stage_of_layer,
                   std::vector<int> replicas, const model::Optimizer& optimizer,
                   const PipelineOptions& options)
    : model_(&model),
      optimizer_(&optimizer),
      options_(options),
      stage_of_layer_(std::move(stage_of_layer)),
      replicas_(std::move(replicas)),
      stages_(std::make_unique<Stages>()) {
  if (model.graph().outputs().size() != 1) {
    throw ConfigError(
        fmt::format("training needs a model with one output (the logits), '{}' has {}",
                    model.name(), model.graph().outputs().size()));
  }
  const schedule::ScheduleShape shape{
      .replicas = replicas_, .micro_batches = 0, .worker_of_replica = options.worker_of_replica};
  schedule::validate(shape);
  gradient_groups_ = choose_groups(replicas_, options.gradient_groups);
  check_sharding(options, replicas_.size());
  const schedule::WorkerTable table(shape);
  world_ = options.world;
  if (world_ == nullptr) {
    own_world_ = make_local_world(table.num_workers(), options.device_of_worker);
    world_ = own_world_.get();
  }
  if (world_->site().num_workers() != table.num_workers()) {
    throw ConfigError(fmt::format("the pipeline has {} workers, its ranks have {}",
                                  table.num_workers(), world_->site().num_workers()));
  }
  stages_->held_by.resize(static_cast<size_t>(table.num_workers()));
  model::Devices& devices =
      options.devices != nullptr ? *options.devices : model::installed_devices();
  const std::vector<at::Device>& device_of_worker = world_->site().device_of_worker;
  stages_->devices.resize(static_cast<size_t>(table.num_workers()));
  for (const WorkerId worker : world_->site().own_workers()) {
    const at::Device device =
        device_of_worker.empty() ? at::Device(at::kCPU) : device_of_worker[worker.index()];
    stages_->devices[worker.index()] = std::make_unique<WorkerDevice>(devices, device);
    stages_->has_gpu = stages_->has_gpu || !device.is_cpu();
  }
  choose_precisions(table);
  std::vector<const StageModule*> modules;
  for (size_t s = 0; s < replicas_.size(); ++s) {
    stages_->modules.push_back(std::make_unique<StageModule>(
        model, stage_of_layer_, StageId{static_cast<int32_t>(s)}, precisions_));
    modules.push_back(stages_->modules.back().get());
    if (modules.back()->layers().empty())
      throw ConfigError(fmt::format("stage {} has no layer", s));
  }
  stages_->ties = find_tied_weights(model, stage_of_layer_, modules);
  for (size_t s = 0; s < replicas_.size(); ++s) {
    auto& stage = stages_->replicas.emplace_back();
    for (int r = 0; r < replicas_[s]; ++r) {
      const WorkerId worker = table.worker_of_replica(StageId{static_cast<int32_t>(s)}, r);
      if (!world_->site().holds(worker)) continue;
      WorkerDevice& device = *stages_->devices[worker.index()];
      const auto scope = device.compute().enter();
      const StageWeights shape_of = weights_of(*modules[s]);
      WeightShare share;
      if (shares_state(s)) {
        share = weight_shares(shape_of.shapes, shape_of.layer_ends,
                              replicas_[s])[static_cast<size_t>(r)];
      }
      stage.push_back(std::make_unique<Replica>(Replica{
          .worker = worker,
          .replica = r,
          .module = modules[s],
          .ties = &stages_->ties.stages[s],
          .device = &device,
          .weights =
              WeightStore(device.to_device(initial_weights(model, *modules[s], options.seed)),
                          optimizer, optimizers_of(model, *modules[s], options.optimizers),
                          std::move(share), modules[s]->weight_types()),
          .buffers = device.to_device(initial_buffers(model, *modules[s])),
          .shares_state = shares_state(s)}));
      if (options.device_graphs && !device.is_host())
        stage.back()->graphs = std::make_unique<StageGraphs>(*modules[s], device.compute());
      stages_->held_by[worker.index()].push_back(stage.back().get());
    }
  }
}

Pipeline::~Pipeline() = default;

void Pipeline::choose_precisions(const schedule::WorkerTable& table) {
  const std::vector<at::Device>& devices = world_->site().device_of_worker;
  const bool has_cuda = std::any_of(devices.begin(), devices.end(),
                                    [](const at::Device& device) { return device.is_cuda(); });
  const bool has_workers = !world_->site().own_workers().empty();
  if (options_.precision == Precision::Tf32 && !has_cuda && has_workers) {
    throw ConfigError(
        "precision tf32 is a mode of NVIDIA's GPUs, and the workers compute on CPUs: expected "
        "float32, bfloat16 or float16");
  }
  if (has_cuda) {
    at::globalContext().setAllowTF32CuBLAS(options_.precision == Precision::Tf32);
    at::globalContext().setAllowTF32CuDNN(options_.precision == Precision::Tf32);
  }
  precisions_.resize(stage_of_layer_.size());
  if (!is_short(options_.precision)) return;
  std::map<at::DeviceType, std::vector<model::LayerPrecision>> found;
  for (size_t l = 0; l < stage_of_layer_.size(); ++l) {
    const at::Device device = memory_of_stage(stage_of_layer_[l], table);
    auto& precisions = found[device.type()];
    if (precisions.empty())
      precisions = model::layer_precisions(*model_, options_.precision, device);
    precisions_[l] = precisions[l];
  }
}

at::Device Pipeline::memory_of_stage(StageId stage, const schedule::WorkerTable& table) const {
  std::optional<at::Device> found;
  for (int replica = 0; replica < replicas_[stage.index()]; ++replica) {
    const WorkerId worker = table.worker_of_replica(stage, replica);
    if (!world_->site().holds(worker)) continue;
    const at::Device device = stages_->devices[worker.index()]->compute().memory();
    if (found && found->type() != device.type()) {
      throw ConfigError(fmt::format(
          "replicas of stage {} are on {} and {}, which compute different operations in {}: "
          "expected devices of one kind, or float32",
          stage.value, found->str(), device.str(), to_string(options_.precision)));
    }
    found = device;
  }
  return found.value_or(at::Device(at::kCPU));
}

std::vector<std::string> Pipeline::kinds_in_float32() const {
  std::set<std::string> kinds;
  for (size_t l = 0; l < precisions_.size(); ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    if (!precisions_[l].computes_in_float32 || !holds(id) ||
        model::insists_on_float32(model_->layer(id)))
      continue;
    kinds.insert(model_->layer(id).kind());
  }
  return {kinds.begin(), kinds.end()};
}

std::vector<std::string> Pipeline::graph_obstacles() const {
  std::vector<std::string> obstacles;
  for (const auto& own : stages_->replicas) {
    for (const auto& replica : own) {
      if (replica->graphs == nullptr || replica->graphs->obstacle().empty()) continue;
      obstacles.push_back(
          fmt::format("stage {}: {}", replica->module->stage().value, replica->graphs->obstacle()));
      break;
    }
  }
  return obstacles;
}

bool Pipeline::holds(LayerId layer) const {
  return !stages_->replicas[stage_of_layer_[layer.index()].index()].empty();
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
  for (const auto& cross : graph::crossing_values(model_->graph(), stage_of_layer_))
    links.insert({cross.from, cross.to});
  return {links.begin(), links.end()};
}

bool Pipeline::needs_norm() const { return !stages_->ties.groups.empty(); }

void Pipeline::check(const Schedule& schedule, const RunOptions& options) const {
  const schedule::ScheduleShape& shape = schedule.shape;
  if (shape.replicas != replicas_ || schedule.workers.size() != stages_->held_by.size()) {
    throw ConfigError(fmt::format(
        "the schedule is for {} stages on {} workers, the pipeline has {} stages on {} workers",
        shape.num_stages(), schedule.workers.size(), replicas_.size(), stages_->held_by.size()));
  }
  if (spelled_out(shape.worker_of_replica, replicas_) !=
      spelled_out(options_.worker_of_replica, replicas_)) {
    throw ConfigError(
        fmt::format("the schedule puts the stages on workers {}, the pipeline on {}",
                    fmt::join(spelled_out(shape.worker_of_replica, replicas_), " "),
                    fmt::join(spelled_out(options_.worker_of_replica, replicas_), " ")));
  }
  if (!schedule.lowered)
    throw ConfigError("the schedule has no messages and steps yet: lower() it first");
  check_messages(schedule, links());
  if (!trains(schedule)) return;
  if (!options.learning_rate) throw ConfigError("a training run needs a learning rate");
  if (options.max_grad_norm > 0 && !shape.global_norm) {
    throw ConfigError(
        "clipping by the global norm needs a schedule with NORM (global_norm in its shape)");
  }
  if (scales_loss(options_.precision) && !shape.global_norm) {
    throw ConfigError(
        "float16 leaves out steps whose gradients are not finite, which all workers have to know: "
        "it "
        "needs a schedule with NORM (global_norm in its shape)");
  }
  if (scales_loss(options_.precision) && options_.sync == plan::GradientSync::Asynchronous) {
    throw ConfigError(
        "float16 leaves out steps, and replicas that sum asynchronously step each by itself: "
        "expected another --sync, or bfloat16");
  }
  if (scales_loss(options_.precision) && shape.policy == schedule::WeightPolicy::Current) {
    throw ConfigError(
        "in float16 each micro-batch has a loss scale of its own, and under weights current its "
        "backward "
        "pass goes through another micro-batch: expected another weight policy, or bfloat16");
  }
  if (needs_norm() && (!shape.global_norm || shape.policy != schedule::WeightPolicy::Flush)) {
    throw ConfigError(
        fmt::format("stages of '{}' share weights, whose gradients are added up before each step: "
                    "that needs the weight policy flush (such as the strategy 1f1b-flush) and a "
                    "schedule with NORM",
                    model_->name()));
  }
}

std::vector<TensorLayout> Pipeline::layout_of(const Message& message, int64_t samples) const {
  // Gradients go back along the values that the sender has read.
  const StageModule& reader =
      *stages_->modules[(message.backward ? message.from : message.to).index()];
  std::vector<TensorLayout> layout;
  for (const size_t i : reader.inputs_from(message.backward ? message.to : message.from)) {
    const graph::ValueRef value = reader.inputs()[i];
    TensorLayout tensor{.sizes = {samples}, .type = reader.activations()};
    const model::Shape& shape =
        model_->output_shapes(value.layer).at(static_cast<size_t>(value.output));
    tensor.sizes.insert(tensor.sizes.end(), shape.begin(), shape.end());
    layout.insert(layout.end(), message.backward ? reader.parts_sent(i).size() : 1, tensor);
  }
  return layout;
}

bool Pipeline::sums_on_gpus(size_t stage) const {
  if (replicas_[stage] == 1 || options_.sync == plan::GradientSync::Asynchronous) return false;
  // All workers of linked ranks have GPUs (DeviceLinks::open()).
  if (world_->has_links()) return true;
  if (world_->site().num_ranks() > 1) return false;
  const auto& own = stages_->replicas[stage];
  return std::none_of(own.begin(), own.end(),
                      [](const auto& replica) { return replica->device->is_host(); });
}

std::unique_ptr<ReplicaExchange> Pipeline::make_exchange(size_t stage,
                                                         const schedule::WorkerTable& table) const {
  std::vector<WorkerId> workers;
  std::vector<WorkerDevice*> devices;
  std::set<int> ranks;
  for (int r = 0; r < replicas_[stage]; ++r) {
    workers.push_back(table.worker_of_replica(StageId{static_cast<int32_t>(stage)}, r));
    const size_t worker = workers.back().index();
    devices.push_back(stages_->devices[worker].get());
    ranks.insert(world_->site().rank_of_worker[worker]);
  }
  return std::make_unique<ReplicaExchange>(StageId{static_cast<int32_t>(stage)}, workers, devices,
                                           stages_->links.get(), ranks.size() < workers.size());
}

RunSetup Pipeline::setup_of(const Schedule& schedule, const BatchSource& source,
                            const RunOptions& options) const {
  RunSetup setup{.schedule = schedule, .weights = {}};
  for (size_t s = 0; s < replicas_.size(); ++s) {
    if (sums_on_gpus(s)) {
      const size_t weights = stages_->modules[s]->weight_offsets().back();
      setup.weights.push_back(
          {.shapes = {{DeviceSum::num_numbers(weights, schedule.shape.accumulate)}},
           .layer_ends = {1}});
      setup.state_sharing.push_back(StateSharing::None);
      continue;
    }
    setup.weights.push_back(weights_of(*stages_->modules[s]));
    // A norm and weights that the stage uses twice need the whole gradients.
    const bool whole = schedule.shape.global_norm || !stages_->ties.stages[s].inside.empty();
    const StateSharing shared = whole ? StateSharing::WholeSums : StateSharing::OwnSums;
    setup.state_sharing.push_back(shares_state(s) ? shared : StateSharing::None);
  }
  setup.ties = stages_->ties.groups;
  setup.num_model_weights = stages_->modules.front()->num_model_weights();
  setup.layout = [this, &source](const Message& message) {
    std::vector<TensorLayout> layout = layout_of(message, source.samples(message.micro_batch));
    const bool by_link = stages_->links != nullptr && stages_->links->carries(message);
    return by_link ? mask_layout(layout.size()) : layout;
  };
  setup.mini_batch_samples = [&source](MiniBatchId mini_batch) {
    return source.mini_batch_samples(mini_batch);
  };
  setup.on_mini_batch = options.on_mini_batch;
  setup.stop = options.stop;
  setup.credits = options.credits;
  setup.sync = options_.sync;
  setup.gradient_precision = options_.gradient_precision;
  setup.staleness = options_.staleness;
  return setup;
}

RunResult Pipeline::run(const Schedule& schedule, const BatchSource& source,
                        const RunOptions& options) {
  return run(schedule, nullptr, source, nullptr, options);
}

RunResult Pipeline::run_endless(const schedule::EndlessSchedule& schedule, BatchSource& source,
                                const RunOptions& options) {
  const schedule::ScheduleShape& shape = schedule.lists.shape();
  if (world_->site().num_ranks() > 1)
    throw ConfigError("an endless run takes one process, found several ranks");
  if (shape.accumulate != 1 || shape.num_workers() != shape.num_stages()) {
    throw ConfigError(fmt::format(
        "an endless run takes one micro-batch per step and one worker per stage, found {} and {} "
        "workers for {} stages",
        shape.accumulate, shape.num_workers(), shape.num_stages()));
  }
  for (const auto& module : stages_->modules) {
    const bool reads_input = std::any_of(module->inputs().begin(), module->inputs().end(),
                                         [](const auto& ref) { return ref.is_model_input(); });
    if (reads_input == module->source_stages().empty()) continue;
    throw ConfigError(
        fmt::format("an endless run needs one first stage that reads the frames; stage {} {}",
                    module->stage().value,
                    reads_input ? "reads them and another stage's outputs" : "has no inputs"));
  }
  return run(schedule.sample, &schedule.lists, source, &source, options);
}

RunResult Pipeline::run(const Schedule& schedule, const schedule::LazySchedule* endless,
                        const BatchSource& source, BatchSource* stream, const RunOptions& options) {
  check(schedule, options);
  // After a failure links are of no use any more: the next run makes new ones, on all ranks.
  struct DropLinks {
    std::unique_ptr<DeviceLinks>& links;
    bool keep = false;
    ~DropLinks() {
      if (!keep) links.reset();
    }
  } drop_links{stages_->links};
  if (world_->has_links()) {
    if (!stages_->links) stages_->links = std::make_unique<DeviceLinks>(*world_);
    std::vector<StageId> exchange;
    for (size_t s = 0; s < replicas_.size(); ++s) {
      if (trains(schedule) && sums_on_gpus(s)) exchange.push_back(StageId{static_cast<int32_t>(s)});
    }
    stages_->links->open(schedule, stages_->devices, exchange, options_.deadline);
  }
  Wait opening = wait_for(options_.deadline);
  RunSetup setup = setup_of(schedule, source, options);
  setup.endless = endless != nullptr;
  // The first stage looks itself, before it takes a frame.
  if (setup.endless) setup.stop = nullptr;
  const std::unique_ptr<Fabric> fabric = world_->open(setup, opening);
  RunContext context(schedule, source, options, *fabric);
  context.loss = options_.loss;
  if (is_short(options_.precision)) {
    context.loss = [this](const at::Tensor& output, const at::Tensor& targets,
                          const model::MiniBatchSize& mini_batch) {
      return options_.loss(model::as_float32(output), targets, mini_batch);
    };
  }
  context.endless = endless;
  context.stream = stream;
  context.gradient_groups = gradient_groups_;
  context.steps_before = steps_;
  context.gradient_precision = options_.gradient_precision;
  context.precision = options_.precision;
  context.loss_scale = loss_scale_;
  if (context.training && scales_loss(options_.precision)) {
    const graph::ValueRef output = model_->graph().outputs().front();
    context.loss_versions = loss_versions(schedule, stage_of_layer_.at(output.layer.index()));
  }
  context.rounded_layers = options_.rounded_layers;
  if (stages_->has_gpu) {
    context.site = &world_->site();
    context.ready = &stages_->ready;
    context.planned_memory_bytes = options_.planned_memory_bytes;
    stages_->ready.clear();
  }
  std::optional<LinkWatch> link_watch;
  if (stages_->links) {
    context.links = stages_->links.get();
    context.layout = [this, &source](const Message& message) {
      return layout_of(message, source.samples(message.micro_batch));
    };
    link_watch.emplace(*stages_->links, *fabric);
  }
  context.sums_updates = options_.sync == plan::GradientSync::Asynchronous;
  for (size_t s = 0; s < replicas_.size(); ++s)
    context.exchanges.push_back(
        context.training && sums_on_gpus(s) ? make_exchange(s, context.table) : nullptr);

  std::vector<std::unique_ptr<StageWorker>> workers;
  for (const WorkerId worker : world_->site().own_workers()) {
    const std::vector<Replica*>& held = stages_->held_by[worker.index()];
    for (Replica* replica : held) replica->weights.begin_run();
    workers.push_back(std::make_unique<StageWorker>(
        worker, held, context,
        WorkerOptions{.threads = options_.threads_per_worker, .deadline = options_.deadline}));
  }
  const int64_t skipped_before = loss_scale_.skipped;
  const auto start = std::chrono::steady_clock::now();
  run_workers(workers, stages_->threads, *fabric, options);
  const auto end = std::chrono::steady_clock::now();
  // A rank without workers adds gradients as long as the others train.
  Wait closing = workers.empty() ? wait_for(kServing) : wait_for(options_.deadline);
  RunOutcome outcome = fabric->finish(closing);
  drop_links.keep = true;
  // A mini-batch is an optimiser step at every stage.
  if (context.training) steps_ += outcome.num_mini_batches;

  RunResult result;
  result.wall_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
  result.mini_batches = std::move(outcome.mini_batches);
  result.timeline.source = "measured";
  result.timeline.workers.resize(schedule.workers.size());
  result.peak_versions.resize(schedule.workers.size());
  for (const auto& worker : workers) {
    auto& events = result.timeline.workers[worker->id().index()] = worker->take_events();
    const auto since_origin = [&](auto& all) {
      for (auto& event : all) {
        event.start_ns -= fabric->origin_ns();
        event.end_ns -= fabric->origin_ns();
      }
    };
    since_origin(events);
    schedule::SumLane lane{.worker = worker->id(), .events = worker->sum_events()};
    since_origin(lane.events);
    if (!lane.events.empty()) result.timeline.sums.push_back(std::move(lane));
    result.waiting_ns += worker->waiting_ns();
    result.peak_versions[worker->id().index()] = worker->peak_versions();
    // All workers have the same.
    if (worker->loss_scale() != nullptr) loss_scale_ = worker->loss_scale()->state();
  }
  result.skipped_steps = loss_scale_.skipped - skipped_before;
  return result;
}

model::Tensors Pipeline::mean_buffers(size_t stage) const {
  const auto& own = stages_->replicas[stage];
  const auto on_host = [](const Replica& replica) {
    return replica.device->to_host(replica.buffers);
  };
  if (replicas_[stage] == 1) return own.empty() ? model::Tensors{} : on_host(*own.front());
  // A replica that had no micro-batch has the buffers of before, and no say: the sums of the others
  // are divided by how many they are.
  std::map<int, model::Tensors> buffers;
  for (const auto& replica : own) {
    model::Tensors& parts = buffers[replica->replica];
    if (replica->buffers.empty()) continue;
    for (const at::Tensor& buffer : on_host(*replica))
      parts.push_back(replica->has_trained ? buffer : at::zeros_like(buffer));
    parts.push_back(at::full({1}, replica->has_trained ? 1.0 : 0.0));
  }
  Wait wait = wait_for(options_.deadline);
  model::Tensors means = world_->average(replicas_[stage], buffers, wait);
  if (means.empty()) return means;
  const auto share = means.back().item<double>();
  means.pop_back();
  if (share == 0) return on_host(*own.front());  // equal on all
  if (share < 1) {
    for (at::Tensor& mean : means) mean.div_(share);
  }
  return means;
}

void Pipeline::average_buffers() {
  const at::NoGradGuard no_grad;
  for (size_t s = 0; s < stages_->replicas.size(); ++s) {
    if (replicas_[s] == 1) continue;
    const model::Tensors means = mean_buffers(s);
    for (const auto& replica : stages_->replicas[s]) {
      for (size_t b = 0; b < means.size(); ++b) replica->buffers[b].copy_(means[b]);
      replica->has_trained = false;
    }
  }
}

std::vector<model::Tensors> Pipeline::whole_state(size_t stage) const {
  const auto& own = stages_->replicas[stage];
  const bool is_first = !own.empty() && own.front()->replica == 0;
  if (!shares_state(stage))
    return is_first ? own.front()->weights.state() : std::vector<model::Tensors>{};
  const StageWeights weights = weights_of(*stages_->modules[stage]);
  const std::vector<WeightShare> shares =
      weight_shares(weights.shapes, weights.layer_ends, replicas_[stage]);
  std::vector<model::Tensors> whole(is_first ? optimizer_->state_names().size() : 0);
  const auto put = [&](size_t replica, size_t weight, size_t state, const at::Tensor& part) {
    if (!is_first) return;
    const WeightRange& range = shares[replica][weight];
    model::Tensors& tensors = whole[state];
    if (tensors.size() == weight) tensors.push_back(at::zeros(weights.shapes[weight], at::kFloat));
    tensors[weight].view(-1).narrow(0, range.begin, range.length).copy_(part);
  };
  const schedule::WorkerTable table(
      {.replicas = replicas_, .micro_batches = 0, .worker_of_replica = options_.worker_of_replica});
  std::set<int> ranks;
  for (int r = 0; r < replicas_[stage]; ++r) {
    const WorkerId worker = table.worker_of_replica(StageId{static_cast<int32_t>(stage)}, r);
    ranks.insert(world_->site().rank_of_worker[worker.index()]);
  }
  const bool is_spread = ranks.size() > 1;
  // Weight by weight, so that little is on its way at a time.
  for (size_t w = 0; w < weights.shapes.size(); ++w) {
    net::WireWriter out;
    for (const auto& replica : own) {
      model::Tensors parts;
      for (const model::Tensors& state : replica->weights.state()) parts.push_back(state[w]);
      if (!replica->device->is_host()) parts = replica->device->to_host(std::move(parts));
      for (size_t s = 0; s < parts.size(); ++s)
        put(static_cast<size_t>(replica->replica), w, s, parts[s]);
      if (!is_spread || is_first) continue;
      out.put<int32_t>(replica->replica);
      put_tensors(out, parts);
    }
    if (!is_spread) continue;
    Wait wait = wait_for(options_.deadline);
    for (const std::string& text : world_->all_gather(out.take(), wait)) {
      net::WireReader in(text);
      while (!in.empty()) {
        const auto replica = in.get<int32_t>();
        const model::Tensors parts = get_tensors(in);
        for (size_t s = 0; s < parts.size(); ++s) put(static_cast<size_t>(replica), w, s, parts[s]);
      }
    }
  }
  return whole;
}

std::vector<LayerSnapshot> Pipeline::snapshot() const {
  const at::NoGradGuard no_grad;
  std::vector<LayerSnapshot> layers(stage_of_layer_.size());
  for (LayerSnapshot& layer : layers) layer.here = false;
  for (size_t stage = 0; stage < stages_->replicas.size(); ++stage) {
    const model::Tensors buffers = mean_buffers(stage);
    const std::vector<model::Tensors> state = whole_state(stage);
    const auto& own = stages_->replicas[stage];
    if (own.empty() || own.front()->replica != 0) continue;
    const StageModule& module = *own.front()->module;
    const WeightStore& store = own.front()->weights;
    const model::Tensors weights = store.newest();
    for (size_t i = 0; i < module.layers().size(); ++i) {
      LayerSnapshot& layer = layers[module.layers()[i].index()];
      layer.here = true;
      layer.optimizer_state.resize(state.size());
      for (size_t w = module.weight_offsets()[i]; w < module.weight_offsets()[i + 1]; ++w) {
        layer.weights.push_back(weights[w].detach());
        for (size_t s = 0; s < state.size(); ++s) layer.optimizer_state[s].push_back(state[s][w]);
      }
      WorkerDevice& device = *own.front()->device;
      layer.weights = device.to_host(std::move(layer.weights));
      // What is shared out is there already.
      if (!shares_state(stage)) {
        for (model::Tensors& tensors : layer.optimizer_state)
          tensors = device.to_host(std::move(tensors));
      }
      for (size_t b = module.buffer_offsets()[i]; b < module.buffer_offsets()[i + 1]; ++b)
        layer.buffers.push_back(buffers[b]);
    }
  }
  return layers;
}

std::map<LayerId, LayerSnapshot> Pipeline::copy_of_stage(StageId stage) const {
  const at::NoGradGuard no_grad;
  const auto& own = stages_->replicas[stage.index()];
  PENSTOCK_CHECK(own.size() == 1, stage, own.size());
  const StageModule& module = *own.front()->module;
  const WeightStore& store = own.front()->weights;
  WorkerDevice& device = *own.front()->device;
  // One wait for all of them.
  const auto copied = [&device](const model::Tensors& tensors) {
    return device.is_host() ? model::copies_of(tensors) : device.to_host(tensors);
  };
  const model::Tensors weights = copied(detached(store.newest()));
  const model::Tensors buffers = copied(own.front()->buffers);
  std::vector<model::Tensors> state;
  for (const model::Tensors& tensors : store.state()) state.push_back(copied(tensors));
  std::map<LayerId, LayerSnapshot> layers;
  for (size_t i = 0; i < module.layers().size(); ++i) {
    LayerSnapshot& layer = layers[module.layers()[i]];
    layer.optimizer_state.resize(state.size());
    for (size_t w = module.weight_offsets()[i]; w < module.weight_offsets()[i + 1]; ++w) {
      layer.weights.push_back(weights[w]);
      for (size_t s = 0; s < state.size(); ++s) layer.optimizer_state[s].push_back(state[s][w]);
    }
    for (size_t b = module.buffer_offsets()[i]; b < module.buffer_offsets()[i + 1]; ++b)
      layer.buffers.push_back(buffers[b]);
  }
  return layers;
}

void Pipeline::load(const std::vector<LayerSnapshot>& layers, int64_t steps) {
  PENSTOCK_CHECK(layers.size() == stage_of_layer_.size(), layers.size(), stage_of_layer_.size());
  const size_t num_states = optimizer_->state_names().size();
  for (const auto& own : stages_->replicas) {
    if (own.empty()) continue;
    model::Tensors weights;
    model::Tensors buffers;
    std::vector<model::Tensors> state(num_states);
    for (const LayerId id : own.front()->module->layers()) {
      const LayerSnapshot& layer = layers[id.index()];
      weights.insert(weights.end(), layer.weights.begin(), layer.weights.end());
      buffers.insert(buffers.end(), layer.buffers.begin(), layer.buffers.end());
      PENSTOCK_CHECK(layer.optimizer_state.size() == num_states, layer.optimizer_state.size(),
                     num_states);
      for (size_t s = 0; s < num_states; ++s)
        state[s].insert(state[s].end(), layer.optimizer_state[s].begin(),
                        layer.optimizer_state[s].end());
    }
    for (const auto& replica : own) {
      const auto scope = replica->device->compute().enter();
      replica->weights.load(weights, state);
      PENSTOCK_CHECK(buffers.size() == replica->buffers.size(), buffers.size());
      for (size_t b = 0; b < buffers.size(); ++b) replica->buffers[b].copy_(buffers[b]);
      replica->has_trained = false;
    }
  }
  steps_ = steps;
  loss_scale_ = {};
}

}  // namespace penstock::runtime
