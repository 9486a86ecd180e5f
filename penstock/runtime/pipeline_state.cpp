#include "penstock/runtime/pipeline_state.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "penstock/model/device/copies.h"
#include "penstock/model/precision.h"
#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/runtime/fabric/weight_shares.h"
#include "penstock/runtime/round_layout.h"
#include "penstock/runtime/whole_layers.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

model::Tensors detached(model::Tensors tensors) {
  for (at::Tensor& tensor : tensors) tensor = tensor.detach();
  return tensors;
}

model::Tensors on_host(const Replica& replica) { return replica.device->to_host(replica.buffers); }

/// All tensors of a stage as the layers of its module.
struct StageTensors {
  model::Tensors weights = {};
  model::Tensors buffers = {};
  std::vector<model::Tensors> state = {};

  LayerSnapshot layer(const StageModule& module, size_t i) const {
    LayerSnapshot layer;
    layer.optimizer_state.resize(state.size());
    for (size_t w = module.weight_offsets()[i]; w < module.weight_offsets()[i + 1]; ++w) {
      layer.weights.push_back(weights[w]);
      for (size_t s = 0; s < state.size(); ++s) layer.optimizer_state[s].push_back(state[s][w]);
    }
    for (size_t b = module.buffer_offsets()[i]; b < module.buffer_offsets()[i + 1]; ++b)
      layer.buffers.push_back(buffers[b]);
    return layer;
  }
};

/// The optimiser's state of whole weights, out of the shares of all replicas.
class WholeState {
 public:
  WholeState(const StageModule& module, int replicas, size_t num_states)
      : weights_(weights_of(module)),
        shares_(weight_shares(weights_.shapes, weights_.layer_ends, replicas)),
        whole_(num_states) {}

  size_t num_weights() const { return weights_.shapes.size(); }
  /// Of a weight, one tensor for each state. Weights ascend.
  void put(int replica, size_t weight, const model::Tensors& parts) {
    for (size_t s = 0; s < whole_.size(); ++s) {
      const WeightRange& range = shares_[static_cast<size_t>(replica)][weight];
      model::Tensors& tensors = whole_[s];
      if (tensors.size() == weight)
        tensors.push_back(at::zeros(weights_.shapes[weight], at::kFloat));
      tensors[weight].view(-1).narrow(0, range.begin, range.length).copy_(parts[s]);
    }
  }
  std::vector<model::Tensors> take() { return std::move(whole_); }

 private:
  StageWeights weights_;
  std::vector<WeightShare> shares_;
  std::vector<model::Tensors> whole_;  ///< none where nothing is put together
};

/// The replica's share of the state of a weight, in the host's memory.
model::Tensors own_state(const Replica& replica, size_t weight) {
  model::Tensors parts;
  for (const model::Tensors& state : replica.weights.state()) parts.push_back(state[weight]);
  if (!replica.device->is_host()) parts = replica.device->to_host(std::move(parts));
  return parts;
}

/// The numbers of what PowerSGD keeps among a stage's states.
struct LowRankStates {
  explicit LowRankStates(const Stages& stages)
      : factor(stages.optimizer.state_names().size()), size(stages.state_names().size()) {}
  size_t error(int replica) const { return factor + 1 + static_cast<size_t>(replica); }

  size_t factor;
  size_t size;
};

RoundLayout layout_of(const Stages& stages) {
  return {stages.counts.front(), stages.optimizer.state_names().size(),
          stages.outer->state_names().size()};
}

/// A weight and its state on a replica that trains by itself, in the host's memory.
model::Tensors own_round(const Replica& replica, size_t weight) {
  model::Tensors parts{replica.weights.newest()[weight].detach()};
  for (const model::Tensors& state : replica.weights.state()) parts.push_back(state[weight]);
  return replica.device->is_host() ? parts : replica.device->to_host(std::move(parts));
}

/// Each replica's part of a stage's snapshot.
void load_round(const Stages& stages, const std::vector<model::Tensors>& all, Replica& replica) {
  const RoundLayout layout = layout_of(stages);
  std::vector<model::Tensors> state;
  for (size_t s = 0; s < replica.weights.state().size(); ++s)
    state.push_back(all[layout.state(replica.replica, s)]);
  replica.weights.load(all[layout.weights(replica.replica)], state);
  state.clear();
  for (size_t s = 0; s < replica.round->state().size(); ++s) state.push_back(all[layout.outer(s)]);
  replica.round->load(all[layout.start()], state);
}

/// Those of the optimiser, and what PowerSGD keeps.
void load_low_rank(const Stages& stages, const model::Tensors& weights,
                   const std::vector<model::Tensors>& all, Replica& replica) {
  const LowRankStates numbers(stages);
  replica.weights.load(weights,
                       {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(numbers.factor)});
  if (!replica.low_rank) return;
  replica.low_rank->load(all[numbers.factor], all[numbers.error(replica.replica)]);
}

}  // namespace

model::Tensors PipelineState::mean_buffers(size_t stage) const {
  const auto& own = stages_.replicas[stage];
  const int count = stages_.counts[stage];
  if (count == 1) return own.empty() ? model::Tensors{} : on_host(*own.front());
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
  Wait wait = wait_for(stages_.options.deadline);
  model::Tensors means = stages_.world->average(count, buffers, wait);
  if (means.empty()) return means;
  const auto share = means.back().item<double>();
  means.pop_back();
  if (share == 0) return on_host(*own.front());  // equal on all
  if (share < 1) {
    for (at::Tensor& mean : means) mean.div_(share);
  }
  return means;
}

void PipelineState::average_buffers() {
  const at::NoGradGuard no_grad;
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (stages_.counts[s] == 1) continue;
    const model::Tensors means = mean_buffers(s);
    for (const auto& replica : stages_.replicas[s]) {
      for (size_t b = 0; b < means.size(); ++b) replica->buffers[b].copy_(means[b]);
      replica->has_trained = false;
    }
  }
}

model::Tensors PipelineState::round_weights(size_t stage) const {
  const auto& own = stages_.replicas[stage];
  if (steps_ % stages_.options.sync_every == 0)
    return own.empty() ? model::Tensors{} : own.front()->round->start();
  std::map<int, model::Tensors> changes;
  for (const auto& replica : own) {
    changes[replica->replica] = replica->device->to_host(
        replica->round->changes(replica->weights, 0, replica->module->weight_offsets().back()));
  }
  Wait wait = wait_for(stages_.options.deadline);
  const model::Tensors means = stages_.world->average(stages_.counts[stage], changes, wait);
  if (own.empty()) return {};
  const auto scope = own.front()->device->compute().enter();
  return own.front()->round->closed(own.front()->device->to_device(means), stages_.outer_step());
}

void PipelineState::exchange_averages() {
  for (const auto& stage : stages_.replicas) {
    for (const auto& replica : stage) {
      const auto scope = replica->device->compute().enter();
      replica->weights.exchange_average();
    }
  }
}

void PipelineState::show_rounds() {
  // All are gathered first: where that fails, the replicas keep the weights that they train.
  std::vector<model::Tensors> shown;
  for (size_t s = 0; s < stages_.size(); ++s) shown.push_back(round_weights(s));
  for (size_t s = 0; s < stages_.size(); ++s) {
    for (const auto& replica : stages_.replicas[s]) {
      const auto scope = replica->device->compute().enter();
      replica->round->show(replica->weights, replica->device->to_device(shown[s]));
    }
  }
}

void PipelineState::hide_rounds() {
  for (const auto& stage : stages_.replicas) {
    for (const auto& replica : stage) {
      const auto scope = replica->device->compute().enter();
      replica->round->hide(replica->weights);
    }
  }
}

std::vector<model::Tensors> PipelineState::whole_state(size_t stage) const {
  if (stages_.has_rounds()) return round_state(stage);
  if (stages_.shares_state(stage)) return gathered_state(stage);
  const auto& own = stages_.replicas[stage];
  const bool is_first = !own.empty() && own.front()->replica == 0;
  std::vector<model::Tensors> state =
      is_first ? own.front()->weights.state() : std::vector<model::Tensors>{};
  return sums_factors_ ? low_rank_state(stage, std::move(state)) : state;
}

std::vector<model::Tensors> PipelineState::low_rank_state(size_t stage,
                                                          std::vector<model::Tensors> all) const {
  const auto& own = stages_.replicas[stage];
  const bool is_first = !own.empty() && own.front()->replica == 0;
  const LowRankStates numbers(stages_);
  const size_t weights = stages_.modules[stage]->weight_offsets().back();
  if (is_first) {
    for (model::Tensors& state : all) state = own.front()->device->to_host(std::move(state));
    all.resize(numbers.size, model::Tensors(weights, at::empty({0}, at::kFloat)));
  }
  if (!stages_.sums_factors(stage)) return all;
  if (is_first) {
    all[numbers.factor] = own.front()->low_rank->factors();
    for (const auto& replica : own)
      all[numbers.error(replica->replica)] = replica->low_rank->errors();
  }
  // Weight by weight, so that little is on its way at a time.
  for (size_t w = 0; w < weights && stages_.is_spread(stage); ++w) {
    net::WireWriter out;
    for (const auto& replica : own) {
      if (is_first) continue;
      out.put<int32_t>(replica->replica);
      put_tensors(out, {replica->low_rank->errors()[w]});
    }
    Wait wait = wait_for(stages_.options.deadline);
    for (const std::string& text : stages_.world->all_gather(out.take(), wait)) {
      net::WireReader in(text);
      while (is_first && !in.empty()) {
        const auto replica = in.get<int32_t>();
        all[numbers.error(replica)][w] = get_tensors(in).front();
      }
    }
  }
  return all;
}

std::vector<model::Tensors> PipelineState::gathered_state(size_t stage) const {
  const auto& own = stages_.replicas[stage];
  const bool is_first = !own.empty() && own.front()->replica == 0;
  WholeState whole(*stages_.modules[stage], stages_.counts[stage],
                   is_first ? stages_.optimizer.state_names().size() : 0);
  const bool is_spread = stages_.is_spread(stage);
  // Weight by weight, so that little is on its way at a time.
  for (size_t w = 0; w < whole.num_weights(); ++w) {
    net::WireWriter out;
    for (const auto& replica : own) {
      const model::Tensors parts = own_state(*replica, w);
      whole.put(replica->replica, w, parts);
      if (!is_spread || is_first) continue;
      out.put<int32_t>(replica->replica);
      put_tensors(out, parts);
    }
    if (!is_spread) continue;
    Wait wait = wait_for(stages_.options.deadline);
    for (const std::string& text : stages_.world->all_gather(out.take(), wait)) {
      net::WireReader in(text);
      while (!in.empty()) {
        const auto replica = in.get<int32_t>();
        whole.put(replica, w, get_tensors(in));
      }
    }
  }
  return whole.take();
}

std::vector<model::Tensors> PipelineState::round_state(size_t stage) const {
  const auto& own = stages_.replicas[stage];
  const bool is_first = !own.empty() && own.front()->replica == 0;
  const RoundLayout layout = layout_of(stages_);
  std::vector<model::Tensors> all(is_first ? layout.size() : 0);
  const auto put = [&](int replica, const model::Tensors& parts) {
    for (size_t p = 0; is_first && p < parts.size(); ++p)
      all[layout.weights(replica) + p].push_back(parts[p]);
  };
  const bool is_spread = stages_.is_spread(stage);
  // Weight by weight, so that little is on its way at a time.
  for (size_t w = 0; w < stages_.modules[stage]->weight_offsets().back(); ++w) {
    net::WireWriter out;
    for (const auto& replica : own) {
      const model::Tensors parts = own_round(*replica, w);
      put(replica->replica, parts);
      if (!is_spread || is_first) continue;
      out.put<int32_t>(replica->replica);
      put_tensors(out, parts);
    }
    if (!is_spread) continue;
    Wait wait = wait_for(stages_.options.deadline);
    for (const std::string& text : stages_.world->all_gather(out.take(), wait)) {
      net::WireReader in(text);
      while (!in.empty()) {
        const auto replica = in.get<int32_t>();
        put(replica, get_tensors(in));
      }
    }
  }
  if (!is_first) return all;
  all[layout.start()] = own.front()->device->to_host(own.front()->round->start());
  const std::vector<model::Tensors>& outer = own.front()->round->state();
  for (size_t s = 0; s < outer.size(); ++s)
    all[layout.outer(s)] = own.front()->device->to_host(outer[s]);
  return all;
}

std::vector<LayerSnapshot> PipelineState::snapshot() const {
  const at::NoGradGuard no_grad;
  std::vector<LayerSnapshot> own = own_layers();
  return stages_.model.whole() == nullptr ? own : join_parts(stages_, std::move(own));
}

std::vector<LayerSnapshot> PipelineState::own_layers() const {
  const at::NoGradGuard no_grad;
  std::vector<LayerSnapshot> layers(stages_.stage_of_layer.size());
  for (LayerSnapshot& layer : layers) layer.here = false;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    StageTensors tensors{.buffers = mean_buffers(stage), .state = whole_state(stage)};
    const auto& own = stages_.replicas[stage];
    if (stages_.has_rounds()) tensors.weights = round_weights(stage);
    if (own.empty() || own.front()->replica != 0) continue;
    const StageModule& module = *own.front()->module;
    WorkerDevice& device = *own.front()->device;
    if (!stages_.has_rounds()) tensors.weights = detached(own.front()->weights.newest());
    for (size_t i = 0; i < module.layers().size(); ++i) {
      LayerSnapshot layer = tensors.layer(module, i);
      layer.weights = device.to_host(std::move(layer.weights));
      // What comes from several replicas is there already.
      if (!stages_.shares_state(stage) && !stages_.has_rounds() && !sums_factors_) {
        for (model::Tensors& state : layer.optimizer_state)
          state = device.to_host(std::move(state));
      }
      layers[module.layers()[i].index()] = std::move(layer);
    }
  }
  return layers;
}

std::map<int64_t, model::Tensors> PipelineState::carried_places(size_t stage) const {
  const auto& own = stages_.replicas[stage];
  const bool is_first = !own.empty() && own.front()->replica == 0;
  std::map<int64_t, model::Tensors> places;
  net::WireWriter out;
  for (const auto& replica : own) {
    for (const auto& [place, states] : replica->carried.by_place()) {
      model::Tensors host = replica->device->to_host(states);
      for (at::Tensor& state : host) state = model::as_float32(state);
      if (is_first) {
        places[place] = std::move(host);
        continue;
      }
      out.put<int64_t>(place);
      put_tensors(out, host);
    }
  }
  if (!stages_.is_spread(stage)) return places;
  Wait wait = wait_for(stages_.options.deadline);
  for (const std::string& text : stages_.world->all_gather(out.take(), wait)) {
    net::WireReader in(text);
    while (is_first && !in.empty()) {
      const auto place = in.get<int64_t>();
      places[place] = get_tensors(in);
    }
  }
  return places;
}

std::vector<model::Tensors> PipelineState::carried(int64_t places) const {
  const at::NoGradGuard no_grad;
  std::vector<model::Tensors> layers(stages_.num_whole_layers());
  if (stages_.model.whole() != nullptr) return layers;  // teams carry nothing
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const StageModule& module = *stages_.modules[stage];
    if (!module.carries()) continue;
    const std::map<int64_t, model::Tensors> by_place = carried_places(stage);
    if (static_cast<int64_t>(by_place.size()) != places) continue;  // elsewhere, or none yet
    const std::vector<size_t>& offsets = module.carried_offsets();
    for (size_t i = 0; i < module.layers().size(); ++i) {
      for (size_t c = offsets[i]; c < offsets[i + 1]; ++c) {
        model::Tensors parts;
        for (const auto& [place, states] : by_place) parts.push_back(states[c]);
        layers[module.layers()[i].index()].push_back(at::cat(parts));
      }
    }
  }
  return layers;
}

void PipelineState::load_carried(const std::vector<model::Tensors>& layers,
                                 const std::vector<int64_t>& samples) {
  const at::NoGradGuard no_grad;
  if (stages_.model.whole() != nullptr) return;  // teams carry nothing
  for (const auto& own : stages_.replicas) {
    for (const auto& replica : own) {
      const StageModule& module = *replica->module;
      replica->carried.clear();
      if (!module.carries()) continue;
      model::Tensors states;
      for (const LayerId id : module.layers())
        states.insert(states.end(), layers[id.index()].begin(), layers[id.index()].end());
      PENSTOCK_CHECK(states.size() == module.carried_offsets().back(), states.size());
      const auto scope = replica->device->compute().enter();
      const auto replicas = static_cast<size_t>(stages_.counts[module.stage().index()]);
      int64_t end = 0;
      for (size_t place = 0; place < samples.size(); ++place) {
        end += samples[place];
        if (place % replicas != static_cast<size_t>(replica->replica)) continue;
        model::Tensors parts;
        for (const at::Tensor& state : states)
          parts.push_back(state.narrow(0, end - samples[place], samples[place]).clone());
        replica->carried.keep(static_cast<int64_t>(place),
                              replica->device->to_device(std::move(parts)));
      }
    }
  }
}

std::map<LayerId, LayerSnapshot> PipelineState::copy_of_stage(StageId stage) const {
  const at::NoGradGuard no_grad;
  const auto& own = stages_.replicas[stage.index()];
  PENSTOCK_CHECK(own.size() == 1, stage, own.size());
  if (stages_.model.whole() != nullptr)
    throw ConfigError("a copy of one stage takes whole layers, found a model for teams");
  const WeightStore& store = own.front()->weights;
  WorkerDevice& device = *own.front()->device;
  // One wait for all of them.
  const auto copied = [&device](const model::Tensors& tensors) {
    return device.is_host() ? model::copies_of(tensors) : device.to_host(tensors);
  };
  StageTensors tensors{.weights = copied(detached(store.newest())),
                       .buffers = copied(own.front()->buffers)};
  for (const model::Tensors& state : store.state()) tensors.state.push_back(copied(state));
  const StageModule& module = *own.front()->module;
  std::map<LayerId, LayerSnapshot> layers;
  for (size_t i = 0; i < module.layers().size(); ++i)
    layers[module.layers()[i]] = tensors.layer(module, i);
  return layers;
}

void PipelineState::load(const std::vector<LayerSnapshot>& layers) {
  PENSTOCK_CHECK(layers.size() == stages_.num_whole_layers(), layers.size(),
                 stages_.num_whole_layers());
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (!stages_.replicas[s].empty()) load(s, layers);
  }
}

void PipelineState::load(size_t stage, const std::vector<LayerSnapshot>& layers) {
  const size_t num_states = stages_.state_names().size();
  StageTensors tensors;
  tensors.state.resize(num_states);
  const auto append = [](model::Tensors& all, const model::Tensors& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const LayerId id : stages_.modules[stage]->layers()) {
    const LayerSnapshot layer = part_of(stages_, id, layers);
    append(tensors.weights, layer.weights);
    append(tensors.buffers, layer.buffers);
    PENSTOCK_CHECK(layer.optimizer_state.size() == num_states, layer.optimizer_state.size(),
                   num_states);
    for (size_t s = 0; s < num_states; ++s) append(tensors.state[s], layer.optimizer_state[s]);
  }
  for (const auto& replica : stages_.replicas[stage]) {
    const auto scope = replica->device->compute().enter();
    if (replica->round)
      load_round(stages_, tensors.state, *replica);
    else if (sums_factors_)
      load_low_rank(stages_, tensors.weights, tensors.state, *replica);
    else
      replica->weights.load(tensors.weights, tensors.state);
    PENSTOCK_CHECK(tensors.buffers.size() == replica->buffers.size(), tensors.buffers.size());
    for (size_t b = 0; b < tensors.buffers.size(); ++b)
      replica->buffers[b].copy_(tensors.buffers[b]);
    replica->has_trained = false;
  }
}

}  // namespace penstock::runtime
