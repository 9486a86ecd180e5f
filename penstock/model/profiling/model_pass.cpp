#include "penstock/model/profiling/model_pass.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "penstock/model/device/copies.h"
#include "penstock/model/device/devices.h"
#include "penstock/model/device/layout.h"
#include "penstock/model/keeps_constants.h"
#include "penstock/model/loss.h"
#include "penstock/model/profiling/memory_meter.h"
#include "penstock/model/profiling/saves_meter.h"
#include "penstock/model/profiling/values.h"
#include "penstock/model/random_input.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::model::detail {
namespace {

/// So small that weights hardly change: numbers stay in the normal range in a run of any length.
constexpr double kLearningRate = 1e-6;
/// Of as many bytes, more than caches keep from one layer to the next, layers share what is theirs
/// alone only while their step is made.
constexpr size_t kLargeBytes = 4 << 20;

/// Runs `work`; every exception becomes a RuntimeError that names the layer and the action.
template <class Work>
void as_layer(const Model& model, LayerId id, const char* action, const Work& work) {
  const auto failure = [&](const char* why) {
    const graph::LayerNode& node = model.graph().layer(id);
    return RuntimeError(fmt::format("profiling: {} of layer '{}' ({}) failed: {}", action,
                                    node.name, node.kind, why));
  };
  try {
    work();
  } catch (const InternalError&) {
    throw;
  } catch (const c10::Error& error) {
    throw failure(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw failure(error.what());
  }
}

Shape batched(const Shape& shape, int64_t batch_size) {
  Shape sizes = shape;
  sizes.insert(sizes.begin(), batch_size);
  return sizes;
}

int64_t total_bytes(const Tensors& tensors) {
  int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += static_cast<int64_t>(tensor.nbytes());
  return total;
}

ProfiledLoss random_loss(const Model& model, const ProfilerOptions& options,
                         at::Generator& generator) {
  const LossSpec loss = loss_for(model, options.loss);
  const TargetSpec targets = targets_for(model, loss);
  if (!targets.needed) return {make_loss(loss), {}};
  const std::vector<int64_t> sizes = batched(targets.shape, options.batch_size);
  at::Tensor values = at::empty(sizes, at::TensorOptions().dtype(targets.type));
  if (targets.type == at::kLong)
    values.random_(0, targets.classes, generator);
  else
    values.uniform_(0, 1, generator);
  return {make_loss(loss), values};
}

std::shared_ptr<DeviceStream> stream_of(const ProfilerOptions& options) {
  if (options.device.empty()) return host_stream();
  const at::Device device(options.device);
  require_device(installed_devices(), device);
  return installed_devices().stream(device);
}

/// Rates and decays of groups take no time.
OptimizerSpec without_groups(OptimizerSpec spec) {
  spec.groups.clear();
  return spec;
}

}  // namespace

ModelPass::ModelPass(const ModelPart& part, const ProfilerOptions& options,
                     const std::optional<ProfiledLoss>& loss)
    : part_(part),
      model_(part.model),
      stop_(options.stop),
      precisions_(layer_precisions(
          model_, options.precision,
          options.device.empty() ? at::Device(at::kCPU) : at::Device(options.device))),
      batch_size_(options.batch_size),
      optimizers_(*part.whole, without_groups(options.optimizer)),
      loss_(part.makes_first_result ? loss : std::nullopt),
      stream_(stream_of(options)),
      laps_(*stream_),
      wants_graphs_(options.device_graphs && !stream_->is_host()) {
  const auto scope = stream_->enter();
  const auto layers = static_cast<size_t>(model_.graph().num_layers());
  layers_.resize(layers);
  bytes_.resize(layers);
  try {
    const c10::AutoGradMode no_grad(false);
    auto generator =
        at::make_generator<at::CPUGeneratorImpl>(derive_seed(options.seed, hash_name("profiler")));
    lays_channels_last_ = lays_channels_last(model_, options.precision, stream_->memory());
    const size_t own_inputs = part.whole->inputs().size();
    for (size_t i = 0; i < model_.inputs().size(); ++i) {
      at::Tensor values = i < own_inputs ? random_input(model_.inputs()[i], batch_size_, generator)
                                         : made_up(*part.whole, part.made_up[i - own_inputs],
                                                   batch_size_, generator);
      at::Tensor sample = here(as_activation(std::move(values), options.precision));
      if (lays_channels_last_) sample = channels_last(std::move(sample));
      sample.requires_grad_(part.input_needs_gradient[i]);
      samples_.push_back(std::move(sample));
    }
    if (!loss_ && part.makes_only_result) loss_ = random_loss(model_, options, generator);
    for (size_t i = 0; i < layers; ++i)
      prepare_layer(LayerId{static_cast<int32_t>(i)}, options.seed);
  } catch (const c10::Error& error) {
    throw RuntimeError(fmt::format("profiling: cannot make the model's tensors: {}",
                                   error.what_without_backtrace()));
  }
}

ModelPass::~ModelPass() {
  for (int l = 0; l < model_.graph().num_layers(); ++l) release_constants(model_.layer(LayerId{l}));
}

void ModelPass::prepare_layer(LayerId id, uint64_t seed) {
  LayerState& state = layers_[id.index()];
  const at::ScalarType type = precisions_[id.index()].weights;
  for (at::Tensor& weight : model_.initial_weights(id, seed))
    state.weights.push_back(here(std::move(weight)));
  for (at::Tensor& buffer : model_.initial_buffers(id))
    state.buffers.push_back(here(std::move(buffer)));
  bytes_[id.index()].weights = total_bytes(state.weights);
  for (size_t i = 0; i < state.weights.size(); ++i) {
    at::Tensor& weight = state.weights[i];
    const at::Tensor master = weight;
    state.masters.push_back(type == at::kFloat ? at::Tensor() : master);
    weight = weight.to(type);
    state.optimizer_state.push_back(state_of({id, static_cast<int>(i)}, master));
    weight.requires_grad_();
  }
  if (type != at::kFloat) bytes_[id.index()].short_weights = bytes_[id.index()].weights;
}

Tensors ModelPass::state_of(const graph::ParameterRef& parameter, const at::Tensor& master) {
  const Optimizer& optimizer = optimizer_of(parameter);
  if (!stream_->is_host() || master.nbytes() < kLargeBytes) return optimizer.new_state(master);
  Tensors& shared = large_states_[{&optimizer, master.sizes().vec()}];
  if (shared.empty()) shared = optimizer.new_state(master);
  return shared;
}

at::Tensor& ModelPass::scratch(const at::Tensor& like) {
  at::Tensor& memory = scratch_[{like.scalar_type(), like.sizes().vec(), like.strides().vec()}];
  if (!memory.defined()) memory = at::zeros_like(like).requires_grad_();
  return memory;
}

at::Tensor ModelPass::here(at::Tensor tensor) const {
  return stream_->is_host() ? std::move(tensor) : tensor.to(stream_->memory());
}

std::vector<LayerTimes> ModelPass::run(Backward how) {
  const c10::AutoGradMode with_grad(true);
  const auto scope = stream_->enter();
  const int count = model_.graph().num_layers();
  std::vector<LayerTimes> times(static_cast<size_t>(count));
  if (wants_graphs_ && graph_obstacle_.empty() && !graphs_ && passes_ >= kPassesWithoutGraphs)
    record_graphs();
  const bool by_graphs = graphs_ && how == Backward::Whole;
  if (by_graphs) {
    launch_graphs(times);
  } else {
    forward_all(times);
    loss(times);
    backward_all(how, times);
  }
  if (passes_ == 0) count_saved_values();
  for (int i = 0; i < count; ++i) {
    if (!steps_at_once(LayerId{i})) use_gradients(LayerId{i}, how, times);
  }
  int64_t step_ns = 0;
  if (!stream_->is_host()) step_together(step_ns);
  ++passes_;
  laps_.read();
  if (by_graphs) read_graphs(times);
  share_out(step_ns, times);
  return times;
}

void ModelPass::forward_all(std::vector<LayerTimes>& times) {
  for (int i = 0; i < model_.graph().num_layers(); ++i) {
    check_stop();
    as_layer(model_, LayerId{i}, "forward",
             [&] { forward(LayerId{i}, times[static_cast<size_t>(i)]); });
  }
}

void ModelPass::backward_all(Backward how, std::vector<LayerTimes>& times) {
  for (int i = model_.graph().num_layers() - 1; i >= 0; --i) {
    check_stop();
    as_layer(model_, LayerId{i}, "backward",
             [&] { backward(LayerId{i}, how, times[static_cast<size_t>(i)]); });
    if (steps_at_once(LayerId{i})) use_gradients(LayerId{i}, how, times);
  }
}

bool ModelPass::steps_at_once(LayerId id) const {
  return stream_->is_host() && std::cmp_greater_equal(bytes_[id.index()].weights, kLargeBytes);
}

void ModelPass::use_gradients(LayerId id, Backward how, std::vector<LayerTimes>& times) {
  as_layer(model_, id, "optimiser step", [&] {
    LayerTimes& layer_times = times[id.index()];
    if (how == Backward::Split) accumulate(layers_[id.index()], layer_times);
    if (stream_->is_host()) step(id, layer_times);
  });
}

void ModelPass::check_stop() const {
  if (stop_ != nullptr && stop_->load()) throw RuntimeError("the measurement was stopped");
}

const at::Tensor& ModelPass::value(const graph::ValueRef& ref) const {
  const auto output = static_cast<size_t>(ref.output);
  return ref.is_model_input() ? samples_.at(output) : layers_[ref.layer.index()].outputs.at(output);
}

void ModelPass::forward(LayerId id, LayerTimes& times) {
  LayerState& state = layers_[id.index()];
  for (const graph::ValueRef& ref : model_.graph().layer(id).inputs) {
    const at::Tensor& source = value(ref);
    state.inputs.push_back(source.requires_grad() ? source.detach().requires_grad_() : source);
  }
  const ForwardContext context{.training = true,
                               .seed = derive_seed(static_cast<uint64_t>(id.value), passes_),
                               .device = stream_->memory()};
  std::optional<MemoryMeter> meter;
  std::optional<SavesMeter> saves;
  if (passes_ == 0) {
    saves.emplace(state.inputs);
    meter.emplace();
  }

  const Laps::Start start = layer_laps_->start();
  state.outputs = forward_in(precisions_[id.index()], model_.layer(id), state.weights,
                             state.buffers, state.inputs, context);
  layer_laps_->add(start, {&times.forward_ns});

  const auto expected = static_cast<size_t>(model_.layer(id).num_outputs());
  if (state.outputs.size() != expected) {
    throw RuntimeError(
        fmt::format("{} output(s) where {} were declared", state.outputs.size(), expected));
  }
  state.output_gradients.resize(expected);
  if (!meter) return;
  LayerBytes& bytes = bytes_[id.index()];
  bytes.stash = meter->bytes();
  bytes.saves = saves->saves(state.inputs, state.outputs);
  for (size_t o = 0; o < expected; ++o) {
    const at::Tensor& output = state.outputs[o];
    bytes.outputs.push_back(static_cast<int64_t>(output.nbytes()));
    const bool is_own_layout =
        lays_channels_last_ && output.is_contiguous(output.suggest_memory_format());
    if (!output.is_contiguous() && !is_own_layout)
      bytes.strided_outputs.push_back(static_cast<int>(o));
  }
}

// A stage frees the outputs that none of its layers saves, and keeps what enters it and one does.
void ModelPass::count_saved_values() {
  const auto is_sample = [&](const graph::ValueRef& value) {
    return value.is_model_input() && std::cmp_less(value.output, part_.whole->inputs().size());
  };
  const auto bytes_of = [&](const graph::ValueRef& value) -> int64_t {
    const auto output = static_cast<size_t>(value.output);
    return value.is_model_input() ? static_cast<int64_t>(samples_[output].nbytes())
                                  : bytes_[value.layer.index()].outputs[output];
  };
  std::vector<profile::LayerSaves> saves;
  for (const LayerBytes& bytes : bytes_) saves.push_back(bytes.saves);
  const auto saved = [&](bool samples) {
    return profile::saved_bytes(model_.graph(), saves, [&](const graph::ValueRef& value) {
      return is_sample(value) == samples ? bytes_of(value) : 0;
    });
  };
  const std::vector<int64_t> values = saved(false);
  const std::vector<int64_t> samples = saved(true);
  for (size_t l = 0; l < values.size(); ++l) {
    LayerBytes& bytes = bytes_[l];
    for (size_t o = 0; o < bytes.outputs.size(); ++o) {
      if (bytes.saves.view_of[o] < 0) bytes.stash -= bytes.outputs[o];
    }
    bytes.stash += values[l];
    bytes.samples = samples[l];
  }
}

/// As in a stage, which gives such an output away.
bool ModelPass::is_read_by_loss_alone(const graph::ValueRef& ref) const {
  const auto output = static_cast<size_t>(ref.output);
  const profile::LayerSaves& saves = bytes_[ref.layer.index()].saves;
  if (saves.outputs[output] || saves.view_of[output] >= 0) return false;
  if (part_.missing_uses[ref.layer.index()][output] > 0) return false;
  return std::ranges::none_of(model_.graph().layers(), [&](const graph::LayerNode& layer) {
    return std::ranges::find(layer.inputs, ref) != layer.inputs.end();
  });
}

/// Gives every output of the model a gradient: the first one that of the loss, the others ones.
void ModelPass::loss(std::vector<LayerTimes>& times) {
  const std::vector<graph::ValueRef>& results = model_.graph().outputs();
  for (size_t i = 0; i < results.size(); ++i) {
    const graph::ValueRef& ref = results[i];
    if (ref.is_model_input() || !value(ref).requires_grad()) continue;
    Tensors& gradients =
        layers_[ref.layer.index()].output_gradients[static_cast<size_t>(ref.output)];
    if (i > 0 || !loss_) {
      gradients.push_back(at::ones_like(value(ref)));
      continue;
    }
    LayerTimes& layer_times = times[ref.layer.index()];
    as_layer(model_, ref.layer, "the loss", [&] {
      const bool is_free = is_read_by_loss_alone(ref);
      const at::Tensor logits = value(ref).detach().requires_grad_();
      std::optional<MemoryMeter> meter;
      if (passes_ == 0) meter.emplace();
      const Laps::Start forward = laps_.start();
      const LossResult result = loss_->loss(as_float32(logits), loss_->targets,
                                            {.samples = batch_size_, .output_is_free = is_free});
      laps_.add(forward, {&layer_times.loss_ns, &layer_times.forward_ns});
      const int64_t saved = meter ? meter->bytes() : 0;
      bytes_[ref.layer.index()].stash += saved;
      const Laps::Start backward = laps_.start();
      gradients.push_back(torch::autograd::grad({result.scaled_loss}, {logits}).front());
      laps_.add(backward,
                {&layer_times.backward_input_ns, &layer_times.backward_ns, &layer_times.loss_ns});
      if (!meter) return;
      const auto logits_bytes = static_cast<int64_t>(logits.nbytes());
      const bool is_overwritten = gradients.back().is_alias_of(logits);
      if (is_overwritten) bytes_[ref.layer.index()].stash += logits_bytes;
      layers_[ref.layer.index()].loss = {
          .working = meter->peak_bytes() - saved + (is_free && !is_overwritten ? logits_bytes : 0),
          .left = meter->bytes() - saved - static_cast<int64_t>(gradients.back().nbytes())};
    });
  }
}

void ModelPass::fill_in_uses(LayerId id, LayerState& state) const {
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    Tensors& parts = state.output_gradients[i];
    int missing = part_.missing_uses[id.index()][i];
    for (; missing < 0 && parts.size() > 1; ++missing) parts.pop_back();
    if (missing <= 0 || !state.outputs[i].requires_grad()) continue;
    const at::Tensor one = parts.empty() ? at::ones_like(state.outputs[i]) : parts.front();
    parts.insert(parts.end(), static_cast<size_t>(missing), one);
  }
}

void ModelPass::roots_of(const LayerState& state, Tensors& outputs, Tensors& gradients) {
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    const Tensors& parts = state.output_gradients[i];
    if (parts.empty() || !state.outputs[i].requires_grad()) continue;
    at::Tensor sum = parts[0];
    for (size_t k = 1; k < parts.size(); ++k) sum = sum + parts[k];
    outputs.push_back(state.outputs[i]);
    gradients.push_back(std::move(sum));
  }
}

void ModelPass::backward(LayerId id, Backward how, LayerTimes& times) {
  LayerState& state = layers_[id.index()];
  Tensors wanted;
  for (const at::Tensor& input : state.inputs) {
    if (input.requires_grad()) wanted.push_back(input);
  }
  const size_t inputs = wanted.size();
  wanted.insert(wanted.end(), state.weights.begin(), state.weights.end());
  fill_in_uses(id, state);
  std::optional<MemoryMeter> meter;
  if (passes_ == 0) meter.emplace();

  const Laps::Start start = layer_laps_->start();
  Tensors outputs;
  Tensors output_gradients;
  roots_of(state, outputs, output_gradients);
  const int64_t arrived = meter ? total_bytes(output_gradients) : 0;
  Tensors gradients(wanted.size());
  const auto make = [&](size_t begin, size_t end) {
    const Tensors part(wanted.begin() + static_cast<std::ptrdiff_t>(begin),
                       wanted.begin() + static_cast<std::ptrdiff_t>(end));
    if (outputs.empty() || part.empty()) return;
    Tensors made =
        torch::autograd::grad(outputs, part, output_gradients, /*retain_graph=*/end < wanted.size(),
                              /*create_graph=*/false,
                              /*allow_unused=*/true);
    std::move(made.begin(), made.end(), gradients.begin() + static_cast<std::ptrdiff_t>(begin));
  };
  if (how == Backward::Split && inputs > 0 && !model_.layer(id).weight_gradients_can_wait()) {
    make(0, wanted.size());
    if (!outputs.empty()) layer_laps_->add(start, {&times.backward_input_ns});
  } else if (how == Backward::Split) {
    make(0, inputs);
    if (inputs > 0 && !outputs.empty()) layer_laps_->add(start, {&times.backward_input_ns});
    const Laps::Start weights = layer_laps_->start();
    make(inputs, wanted.size());
    if (inputs < wanted.size() && !outputs.empty())
      layer_laps_->add(weights, {&times.backward_weight_ns});
  } else {
    make(0, wanted.size());
  }
  for (size_t k = inputs; k < gradients.size(); ++k) {
    if (gradients[k].defined()) gradients[k] = in_order(as_float32(gradients[k]));
  }
  if (!outputs.empty() && !wanted.empty()) layer_laps_->add(start, {&times.backward_ns});
  if (meter) {
    bytes_[id.index()].working =
        std::max(state.loss.working, arrived + state.loss.left + meter->peak_bytes());
  }
  hand_on(id, gradients);
}

/// Gives the inputs' gradients, which come first, to the layers that made the inputs, and keeps
/// those of the weights.
void ModelPass::hand_on(LayerId id, const Tensors& gradients) {
  LayerState& state = layers_[id.index()];
  size_t next = 0;
  const std::vector<graph::ValueRef>& refs = model_.graph().layer(id).inputs;
  for (size_t i = 0; i < refs.size(); ++i) {
    if (!state.inputs[i].requires_grad()) continue;
    const at::Tensor& gradient = gradients[next++];
    if (gradient.defined() && !refs[i].is_model_input())
      layers_[refs[i].layer.index()]
          .output_gradients[static_cast<size_t>(refs[i].output)]
          .push_back(gradient);
  }
  state.weight_gradients.assign(gradients.begin() + static_cast<std::ptrdiff_t>(next),
                                gradients.end());
  state.inputs.clear();
  state.outputs.clear();
  state.output_gradients.clear();
}

void ModelPass::accumulate(LayerState& state, LayerTimes& times) {
  if (state.weights.empty()) return;
  const at::NoGradGuard no_grad;
  Tensors sums;  // nobody reads them
  for (const at::Tensor& gradient : state.weight_gradients)
    sums.push_back(gradient.defined() ? scratch(gradient) : gradient);
  const Laps::Start start = laps_.start();
  for (size_t i = 0; i < state.weight_gradients.size(); ++i) {
    if (sums[i].defined()) sums[i].add_(state.weight_gradients[i]);
  }
  laps_.add(start, {&times.accumulate_ns});
}

void ModelPass::step(LayerId id, LayerTimes& times) {
  LayerState& state = layers_[id.index()];
  if (state.weights.empty()) return;
  const StepContext context{.learning_rate = kLearningRate, .step = passes_ + 1};
  for (const at::Tensor& weight : state.weights) scratch(weight);
  const Laps::Start start = laps_.start();
  for (size_t i = 0; i < state.weights.size(); ++i) {
    if (!state.weight_gradients[i].defined()) continue;
    const Optimizer& optimizer = optimizer_of({id, static_cast<int>(i)});
    at::Tensor& master = state.masters[i];
    at::Tensor& next = scratch(state.weights[i]);
    if (master.defined()) {
      optimizer.step(master, state.weight_gradients[i], master, state.optimizer_state[i], context);
      next.detach().copy_(master);
    } else {
      optimizer.step(state.weights[i], state.weight_gradients[i], next, state.optimizer_state[i],
                     context);
    }
    std::swap(state.weights[i], next);
  }
  laps_.add(start, {&times.step_ns});
  state.weight_gradients.clear();
}

/// As a GPU makes it: of all weights in a few operations, in place.
void ModelPass::step_together(int64_t& step_ns) {
  const StepContext context{.learning_rate = kLearningRate, .step = passes_ + 1};
  const Laps::Start start = laps_.start();
  std::map<const Optimizer*, std::vector<WeightStep>> steps;
  Tensors versions;
  Tensors masters;
  for (size_t l = 0; l < layers_.size(); ++l) {
    LayerState& state = layers_[l];
    for (size_t i = 0; i < state.weights.size(); ++i) {
      if (!state.weight_gradients[i].defined()) continue;
      const at::Tensor& master = state.masters[i];
      const at::Tensor weight = master.defined() ? master : state.weights[i].detach();
      const graph::ParameterRef place{LayerId{static_cast<int32_t>(l)}, static_cast<int>(i)};
      steps[&optimizer_of(place)].push_back(
          {weight, state.weight_gradients[i], weight, state.optimizer_state[i]});
      if (!master.defined()) continue;
      versions.push_back(state.weights[i]);
      masters.push_back(master);
    }
    state.weight_gradients.clear();
  }
  for (auto& [optimizer, own] : steps) optimizer->step_together(own, context);
  copy_all(versions, masters);
  laps_.add(start, {&step_ns});
}

/// The step of all weights belongs to the layers by their bytes.
void ModelPass::share_out(int64_t step_ns, std::vector<LayerTimes>& times) const {
  if (step_ns == 0) return;
  double total = 0;
  for (const LayerBytes& bytes : bytes_) total += static_cast<double>(bytes.weights);
  for (size_t i = 0; i < times.size() && total > 0; ++i) {
    times[i].step_ns = static_cast<int64_t>(static_cast<double>(step_ns) *
                                            static_cast<double>(bytes_[i].weights) / total);
  }
}

}  // namespace penstock::model::detail
