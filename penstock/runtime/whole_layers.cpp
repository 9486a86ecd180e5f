#include "penstock/runtime/whole_layers.h"

#include <ATen/Functions.h>

#include <map>
#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

using model::LayerPart;
using model::TensorPart;

namespace {

/// Own layers, ascending, by the layer of the whole model that they are parts of.
std::map<LayerId, std::vector<LayerId>> pieces_of(const model::Model& model) {
  std::map<LayerId, std::vector<LayerId>> pieces;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const LayerPart* const part = model.part(LayerId{l});
    if (part->whole) pieces[*part->whole].push_back(LayerId{l});
  }
  return pieces;
}

/// The rank that has it of the first replica of a stage.
int rank_of(const Stages& stages, StageId stage) {
  return stages.world->site().rank_of_worker[stages.worker_of(stage.index(), 0).index()];
}

/// What one piece adds to a whole layer: the tensors that no other member has.
class PieceTensors {
 public:
  explicit PieceTensors(const LayerPart& part, size_t num_states) : states_(num_states) {
    for (size_t p = 0; p < part.parameters.size(); ++p) {
      if (part.counts(p)) parameters_.push_back(p);
    }
    for (size_t b = 0; b < part.buffers.size(); ++b) {
      if (part.member == 0 || !part.buffers[b].is_whole()) buffers_.push_back(b);
    }
  }

  bool is_empty() const { return parameters_.empty() && buffers_.empty(); }

  /// All in one list.
  model::Tensors list(const LayerSnapshot& piece) const {
    model::Tensors all;
    for (const size_t p : parameters_) all.push_back(piece.weights[p]);
    for (const size_t b : buffers_) all.push_back(piece.buffers[b]);
    for (size_t s = 0; s < states_; ++s) {
      for (const size_t p : parameters_) all.push_back(piece.optimizer_state[s][p]);
    }
    return all;
  }

  void put(const LayerPart& part, model::Tensors all, LayerSnapshot& whole) const {
    auto next = all.begin();
    for (const size_t p : parameters_) put(part, part.parameters[p], *next++, whole.weights);
    for (const size_t b : buffers_) put(part, part.buffers[b], *next++, whole.buffers);
    for (size_t s = 0; s < states_; ++s) {
      for (const size_t p : parameters_)
        put(part, part.parameters[p], *next++, whole.optimizer_state[s]);
    }
  }

 private:
  static void put(const LayerPart& from, const TensorPart& place, at::Tensor& tensor,
                  model::Tensors& into) {
    at::Tensor& whole = into.at(place.number);
    // State may have other shapes than its weight, and is then the same in all members.
    const bool is_spread = !place.is_whole() && tensor.defined() && tensor.sizes() == place.sizes();
    if (is_spread) {
      if (!whole.defined()) whole = at::empty(place.whole, tensor.options());
      place.put_into(whole, tensor);
    } else if (from.member == 0) {
      whole = std::move(tensor);
    }
  }

  size_t states_;
  std::vector<size_t> parameters_;
  std::vector<size_t> buffers_;
};

}  // namespace

std::vector<LayerSnapshot> join_parts(const Stages& stages, std::vector<LayerSnapshot> parts) {
  const model::Model& model = stages.model;
  const size_t states = stages.optimizer.state_names().size();
  std::vector<LayerSnapshot> whole(stages.num_whole_layers());
  for (LayerSnapshot& layer : whole) layer.here = false;
  for (const auto& [id, pieces] : pieces_of(model)) {
    const StageId first = stages.teams[stages.stage_of_layer[pieces.front().index()].index()].first;
    const int home = rank_of(stages, first);
    const model::Layer& code = model.whole()->layer(id);
    LayerSnapshot& layer = whole[id.index()];
    layer.here = home == stages.world->site().rank;
    if (layer.here) {
      layer.weights.resize(code.parameters().size());
      layer.buffers.resize(code.buffers().size());
      layer.optimizer_state.assign(states, model::Tensors(layer.weights.size()));
    }
    for (const LayerId piece : pieces) {
      const LayerPart& part = *model.part(piece);
      const PieceTensors tensors(part, states);
      if (tensors.is_empty()) continue;
      const LayerSnapshot given = std::exchange(parts[piece.index()], {.here = false});
      Wait wait = wait_for(stages.options.deadline);
      model::Tensors brought =
          stages.world->bring(rank_of(stages, stages.stage_of_layer[piece.index()]), home,
                              given.here ? tensors.list(given) : model::Tensors{}, wait);
      if (layer.here) tensors.put(part, std::move(brought), layer);
    }
  }
  // None goes on, and may end, before all have what was brought to them.
  Wait wait = wait_for(stages.options.deadline);
  (void)stages.world->all_gather({}, wait);
  return whole;
}

LayerSnapshot part_of(const Stages& stages, LayerId layer,
                      const std::vector<LayerSnapshot>& whole) {
  const LayerPart* const part = stages.model.part(layer);
  if (part == nullptr) return whole[layer.index()];
  const size_t states = stages.optimizer.state_names().size();
  LayerSnapshot own{.optimizer_state = std::vector<model::Tensors>(states)};
  if (!part->whole) return own;
  const LayerSnapshot& from = whole[part->whole->index()];
  PENSTOCK_CHECK(from.optimizer_state.size() == states, from.optimizer_state.size(), states);
  for (const TensorPart& buffer : part->buffers)
    own.buffers.push_back(buffer.of(from.buffers.at(buffer.number)));
  for (const TensorPart& parameter : part->parameters) {
    own.weights.push_back(parameter.of(from.weights.at(parameter.number)));
    for (size_t s = 0; s < states; ++s) {
      const at::Tensor& state = from.optimizer_state[s].at(parameter.number);
      const bool is_spread = state.defined() && state.sizes() == parameter.whole;
      own.optimizer_state[s].push_back(is_spread ? parameter.of(state) : state);
    }
  }
  return own;
}

bool holds_part(const Stages& stages, LayerId whole) {
  if (stages.model.whole() == nullptr) return stages.holds(whole);
  for (size_t l = 0; l < stages.stage_of_layer.size(); ++l) {
    const LayerId id{static_cast<int32_t>(l)};
    if (stages.model.part(id)->whole == whole && stages.holds(id)) return true;
  }
  return false;
}

}  // namespace penstock::runtime
