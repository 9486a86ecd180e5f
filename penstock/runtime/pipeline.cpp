#include "penstock/runtime/pipeline.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>

#include "penstock/runtime/stage_worker.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Schedule;

/// A replica with its stage's module shared among the stage's replicas.
struct Pipeline::Worker {
  std::shared_ptr<const StageModule> module;
  Replica replica;
};

namespace {

model::Tensors initial_weights(const model::Model& model, const StageModule& module, uint64_t seed) {
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

bool trains(const Schedule& schedule) {
  for (const auto& actions : schedule.workers) {
    for (const Action& action : actions) {
      if (action.op == schedule::Op::Backward) return true;
    }
  }
  return false;
}

/// All messages must run along the links of the model's split, and every link must be used: otherwise a stage would compute without its
/// inputs.
void check_messages(const Schedule& schedule, const std::vector<schedule::StageLink>& links) {
  std::set<schedule::StageLink> used;
  for (const auto& actions : schedule.workers) {
    for (const Action& action : actions) {
      if (action.op == schedule::Op::RecvForward) used.insert({action.peer, action.stage});
    }
  }
  const std::set<schedule::StageLink> expected(links.begin(), links.end());
  if (schedule.shape.micro_batches == 0 || used == expected) return;
  for (const auto& link : expected) {
    if (!used.contains(link)) {
      throw ConfigError(fmt::format("the model sends tensors from stage {} to stage {}, but the schedule has no message for it",
                                    link.from.value, link.to.value));
    }
  }
  for (const auto& link : used) {
    if (!expected.contains(link)) {
      throw ConfigError(
          fmt::format("the schedule has messages from stage {} to stage {}, but no tensor flows there", link.from.value, link.to.value));
    }
  }
}

}  // namespace

Pipeline::Pipeline(const model::Model& model, std::vector<StageId> stage_of_layer, std::vector<int> replicas,
                   const model::Optimizer& optimizer, const PipelineOptions& options)
    : model_(&model),
      optimizer_(&optimizer),
      options_(options),
      stage_of_layer_(std::move(stage_of_layer)),
      replicas_(std::move(replicas)) {
  if (model.graph().outputs().size() != 1) {
    throw ConfigError(
        fmt::format("training needs a model with one output (the logits), '{}' has {}", model.name(), model.graph().outputs().size()));
  }
  if (!options.recompute.empty() && options.recompute.size() != replicas_.size()) {
    throw ConfigError(
        fmt::format("recompute says something about {} stages, the pipeline has {}", options.recompute.size(), replicas_.size()));
  }
  int32_t next_worker = 0;
  for (size_t s = 0; s < replicas_.size(); ++s) {
    const auto module = std::make_shared<const StageModule>(model, stage_of_layer_, StageId{static_cast<int32_t>(s)});
    if (module->layers().empty()) throw ConfigError(fmt::format("stage {} has no layer", s));
    for (int r = 0; r < replicas_[s]; ++r) {
      workers_.push_back(std::make_unique<Worker>(Worker{
          module, Replica{WorkerId{next_worker++}, r, module.get(), WeightStore(initial_weights(model, *module, options.seed), optimizer),
                          initial_buffers(model, *module), !options.recompute.empty() && options.recompute[s]}}));
    }
  }
}

Pipeline::~Pipeline() = default;

std::vector<schedule::StageLink> Pipeline::links() const {
  std::set<schedule::StageLink> links;
  for (const auto& cross : graph::crossing_values(model_->graph(), stage_of_layer_)) links.insert({cross.from, cross.to});
  return {links.begin(), links.end()};
}

RunResult Pipeline::run(const Schedule& schedule, const BatchSource& source, const RunOptions& options) {
  if (schedule.shape.replicas != replicas_ || schedule.workers.size() != workers_.size()) {
    throw ConfigError(fmt::format("the schedule is for {} stages on {} workers, the pipeline has {} stages on {} workers",
                                  schedule.shape.num_stages(), schedule.workers.size(), replicas_.size(), workers_.size()));
  }
  if (!schedule.lowered) throw ConfigError("the schedule has no messages and steps yet: lower() it first");
  check_messages(schedule, links());

  std::vector<StageId> stage_of_worker;
  for (const auto& worker : workers_) stage_of_worker.push_back(worker->module->stage());
  RunState state(schedule, source, options, stage_of_worker);
  state.training = trains(schedule);
  if (state.training && !options.learning_rate) throw ConfigError("a training run needs a learning rate");

  std::vector<std::unique_ptr<StageWorker>> stage_workers;
  for (const auto& worker : workers_) {
    worker->replica.weights.begin_run();
    stage_workers.push_back(std::make_unique<StageWorker>(worker->replica, state, options_, steps_));
  }
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    threads.reserve(stage_workers.size());
    try {
      for (const auto& worker : stage_workers) threads.emplace_back([&worker]() { worker->run(); });
    } catch (const std::system_error& error) {
      state.fail(std::make_exception_ptr(
          RuntimeError(fmt::format("cannot start thread {} of {}: {}", threads.size(), stage_workers.size(), error.what()))));
    }
  }
  const auto end = std::chrono::steady_clock::now();
  if (state.training) steps_ += workers_.front()->replica.weights.latest().value;
  state.rethrow_failure();

  RunResult result;
  result.wall_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
  result.mini_batches = state.losses.take(state.gate.last_started() + 1);
  result.timeline.source = "measured";
  const int64_t origin = std::chrono::duration_cast<std::chrono::nanoseconds>(start.time_since_epoch()).count();
  for (const auto& worker : stage_workers) {
    auto& events = result.timeline.workers.emplace_back(worker->take_events());
    for (auto& event : events) {
      event.start_ns -= origin;
      event.end_ns -= origin;
    }
    result.waiting_ns += worker->waiting_ns();
    result.peak_versions.push_back(worker->peak_versions());
  }
  return result;
}

void Pipeline::average_buffers() {
  const at::NoGradGuard no_grad;
  size_t first = 0;
  for (const int replicas : replicas_) {
    const auto count = static_cast<size_t>(replicas);
    model::Tensors& target = workers_[first]->replica.buffers;
    for (size_t b = 0; count > 1 && b < target.size(); ++b) {
      at::Tensor sum = target[b].clone();
      for (size_t r = 1; r < count; ++r) sum += workers_[first + r]->replica.buffers[b];
      sum /= static_cast<double>(count);
      for (size_t r = 0; r < count; ++r) workers_[first + r]->replica.buffers[b].copy_(sum);
    }
    first += count;
  }
}

std::vector<LayerSnapshot> Pipeline::snapshot() const {
  std::vector<LayerSnapshot> layers(stage_of_layer_.size());
  size_t first = 0;
  for (const int replicas : replicas_) {
    const Worker& worker = *workers_[first];
    const StageModule& module = *worker.module;
    const WeightStore& store = worker.replica.weights;
    const model::Tensors& weights = store.newest();
    for (size_t i = 0; i < module.layers().size(); ++i) {
      LayerSnapshot& layer = layers[module.layers()[i].index()];
      layer.optimizer_state.resize(store.state().size());
      for (size_t w = module.weight_offsets()[i]; w < module.weight_offsets()[i + 1]; ++w) {
        layer.weights.push_back(weights[w].detach());
        for (size_t s = 0; s < store.state().size(); ++s) layer.optimizer_state[s].push_back(store.state()[s][w]);
      }
      for (size_t b = module.buffer_offsets()[i]; b < module.buffer_offsets()[i + 1]; ++b) {
        at::Tensor sum = worker.replica.buffers[b];
        for (int r = 1; r < replicas; ++r) sum = sum + workers_[first + static_cast<size_t>(r)]->replica.buffers[b];
        layer.buffers.push_back(replicas > 1 ? sum / static_cast<double>(replicas) : sum);
      }
    }
    first += static_cast<size_t>(replicas);
  }
  return layers;
}

void Pipeline::load(const std::vector<LayerSnapshot>& layers, int64_t steps) {
  PENSTOCK_CHECK(layers.size() == stage_of_layer_.size(), layers.size(), stage_of_layer_.size());
  const size_t num_states = optimizer_->state_names().size();
  for (const auto& worker : workers_) {
    model::Tensors weights;
    model::Tensors buffers;
    std::vector<model::Tensors> state(num_states);
    for (const LayerId id : worker->module->layers()) {
      const LayerSnapshot& layer = layers[id.index()];
      weights.insert(weights.end(), layer.weights.begin(), layer.weights.end());
      buffers.insert(buffers.end(), layer.buffers.begin(), layer.buffers.end());
      PENSTOCK_CHECK(layer.optimizer_state.size() == num_states, layer.optimizer_state.size(), num_states);
      for (size_t s = 0; s < num_states; ++s)
        state[s].insert(state[s].end(), layer.optimizer_state[s].begin(), layer.optimizer_state[s].end());
    }
    worker->replica.weights.load(weights, state);
    PENSTOCK_CHECK(buffers.size() == worker->replica.buffers.size(), buffers.size());
    for (size_t b = 0; b < buffers.size(); ++b) worker->replica.buffers[b].copy_(buffers[b]);
  }
  steps_ = steps;
}

}  // namespace penstock::runtime
