#include "penstock/runtime/stage_module.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>

#include "penstock/runtime/aborted.h"
#include "penstock/runtime/gradient_order.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::runtime {

using graph::ValueRef;

namespace {

const std::vector<size_t> kNone;

size_t position_of(const std::vector<ValueRef>& values, ValueRef value) {
  return static_cast<size_t>(std::lower_bound(values.begin(), values.end(), value) -
                             values.begin());
}

/// Ascending, each once.
void add_reader(std::vector<LayerId>& readers, LayerId reader) {
  const auto place = std::lower_bound(readers.begin(), readers.end(), reader);
  if (place == readers.end() || *place != reader) readers.insert(place, reader);
}

void sort_unique(std::vector<ValueRef>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

StageModule::StageModule(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                         StageId stage, const std::vector<model::LayerPrecision>& precisions,
                         Pieces pieces)
    : model_(&model), stage_(stage) {
  const graph::ModelGraph& graph = model.graph();
  PENSTOCK_CHECK(stage_of_layer.size() == graph.layers().size(), stage_of_layer.size(),
                 graph.layers().size());
  weight_offsets_.push_back(0);
  buffer_offsets_.push_back(0);
  carried_offsets_.push_back(0);
  for (int l = 0; l < graph.num_layers(); ++l) {
    const size_t weights = model.layer(LayerId{l}).parameters().size();
    if (stage_of_layer[static_cast<size_t>(l)] == stage) {
      layers_.push_back(LayerId{l});
      precisions_.push_back(precisions.empty() ? model::LayerPrecision{}
                                               : precisions.at(static_cast<size_t>(l)));
      weight_types_.resize(weight_types_.size() + weights, precisions_.back().weights);
      model_weights_.push_back(num_model_weights_);
      weight_offsets_.push_back(weight_offsets_.back() + weights);
      buffer_offsets_.push_back(buffer_offsets_.back() + model.layer(LayerId{l}).buffers().size());
      carried_offsets_.push_back(carried_offsets_.back() +
                                 model.layer(LayerId{l}).carried().size());
    }
    num_model_weights_ += weights;
  }
  if (pieces == Pieces::Together) find_pieces(precisions);
  find_boundary(stage_of_layer);
  lay_out_values();
  order_gradients(stage_of_layer);
  find_chains();
}

std::vector<StageId> stages_around(LayerId first, LayerId last, int num_layers) {
  std::vector<StageId> stages(static_cast<size_t>(num_layers), StageId{0});
  std::fill(stages.begin() + first.value, stages.begin() + last.value + 1, StageId{1});
  std::fill(stages.begin() + last.value + 1, stages.end(), StageId{2});
  return stages;
}

void StageModule::find_pieces(const std::vector<model::LayerPrecision>& precisions) {
  const auto in_float32 = [](const model::LayerPrecision& one) {
    return one == model::LayerPrecision{};
  };
  if (!std::all_of(precisions.begin(), precisions.end(), in_float32)) return;
  const int num_layers = model_->graph().num_layers();
  for (int l = 0; l < num_layers; ++l) {
    const auto* const in = dynamic_cast<const model::InPiece*>(&model_->layer(LayerId{l}));
    reader_of_.push_back(in == nullptr ? LayerId{l} : in->piece().last());
    const auto found = std::lower_bound(layers_.begin(), layers_.end(), LayerId{l});
    if (in == nullptr || in->piece().last() != LayerId{l} || found == layers_.end() ||
        *found != LayerId{l})
      continue;
    const auto last = static_cast<size_t>(found - layers_.begin());
    const auto length = static_cast<size_t>(l - in->piece().first().value);
    PENSTOCK_CHECK(last >= length && layers_[last - length] == in->piece().first(), l, length);
    pieces_[last] = {&in->piece(), last - length,
                     std::make_unique<StageModule>(
                         *model_, stages_around(in->piece().first(), LayerId{l}, num_layers),
                         StageId{1}, precisions, Pieces::LayerByLayer)};
  }
}

LayerId StageModule::reader(LayerId layer) const {
  return reader_of_.empty() ? layer : reader_of_[layer.index()];
}

void StageModule::find_boundary(const std::vector<StageId>& stage_of_layer) {
  const graph::ModelGraph& graph = model_->graph();
  const auto here = [&](ValueRef value) {
    return !value.is_model_input() && stage_of_layer[value.layer.index()] == stage_;
  };
  for (const LayerId id : layers_) {
    for (const ValueRef value : graph.layer(id).inputs) {
      if (!here(value)) inputs_.push_back(value);
    }
  }
  sort_unique(inputs_);
  for (const ValueRef value : graph.outputs()) {
    if (here(value)) outputs_.push_back(value);
  }
  const auto crossing = graph::crossing_values(graph, stage_of_layer);
  for (const auto& cross : crossing) {
    if (cross.from == stage_) outputs_.push_back(cross.value);
  }
  sort_unique(outputs_);
  for (const auto& cross : crossing) {
    if (cross.from == stage_) outputs_to_[cross.to].push_back(position_of(outputs_, cross.value));
    if (cross.to == stage_) inputs_from_[cross.from].push_back(position_of(inputs_, cross.value));
  }
  for (auto& [peer, positions] : outputs_to_) std::sort(positions.begin(), positions.end());
  for (auto& [peer, positions] : inputs_from_) std::sort(positions.begin(), positions.end());
  for (const ValueRef value : graph.outputs()) {
    if (here(value)) model_outputs_.push_back(position_of(outputs_, value));
  }
}

void StageModule::add_place(size_t i, const std::vector<ValueRef>& reads,
                            const std::vector<ValueRef>& makes,
                            std::map<ValueRef, size_t>& slot_of) {
  LayerPlace& place = places_.emplace_back();
  for (const ValueRef value : reads) {
    const size_t slot = slot_of.at(value);
    const auto found = std::find(place.sources.begin(), place.sources.end(), slot);
    place.arguments.push_back(static_cast<size_t>(found - place.sources.begin()));
    if (found == place.sources.end()) place.sources.push_back(slot);
  }
  place.first_output = num_slots_;
  place.num_outputs = makes.size();
  for (const ValueRef value : makes) slot_of[value] = num_slots_++;
  maker_of_.resize(num_slots_ - inputs_.size(), i);
  made_by_.push_back(makes);
}

void StageModule::lay_out_values() {
  num_slots_ = inputs_.size();
  std::map<ValueRef, size_t> slot_of;
  for (size_t i = 0; i < inputs_.size(); ++i) slot_of[inputs_[i]] = i;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto piece = pieces_.lower_bound(i);
    if (piece != pieces_.end() && piece->second.first <= i) {
      const StageModule& inner = *piece->second.layers;
      const bool is_last = piece->first == i;
      add_place(i, is_last ? inner.inputs() : std::vector<ValueRef>{},
                is_last ? inner.outputs() : std::vector<ValueRef>{}, slot_of);
      if (!is_last) places_.back().computed_in = piece->first;
      continue;
    }
    const graph::LayerNode& node = model_->graph().layer(layers_[i]);
    std::vector<ValueRef> makes;
    for (int o = 0; o < node.num_outputs; ++o) makes.push_back({layers_[i], o});
    add_place(i, node.inputs, makes, slot_of);
  }
  for (const ValueRef value : outputs_) output_slots_.push_back(slot_of.at(value));

  // A value that nobody reads any more is dropped at once, as in a hand-written forward function.
  std::vector<bool> last_use_seen(num_slots_, false);
  for (const size_t slot : output_slots_) last_use_seen[slot] = true;
  for (size_t i = places_.size(); i-- > 0;) {
    for (const size_t slot : places_[i].sources) {
      if (last_use_seen[slot]) continue;
      last_use_seen[slot] = true;
      places_[i].frees.push_back(slot);
    }
  }
}

void StageModule::order_gradients(const std::vector<StageId>& stage_of_layer) {
  const graph::ModelGraph& graph = model_->graph();
  // of the values that the stage reads or makes
  std::map<ValueRef, std::vector<LayerId>> consumers;
  // per layer: its outputs depend on a weight
  std::vector<bool> from_weights;
  for (int l = 0; l < graph.num_layers(); ++l) {
    const graph::LayerNode& node = graph.layer(LayerId{l});
    bool weights = !model_->layer(LayerId{l}).parameters().empty();
    for (const ValueRef value : node.inputs) {
      if (!value.is_model_input()) weights = weights || from_weights[value.layer.index()];
      if (!value.is_model_input() && reader(value.layer) == reader(LayerId{l}) &&
          value.layer != LayerId{l} && !reader_of_.empty())
        continue;  // inside of a piece
      add_reader(consumers[value], reader(LayerId{l}));
    }
    from_weights.push_back(weights);
  }
  const auto parts_of = [&](ValueRef value) {
    const bool is_output =
        std::find(graph.outputs().begin(), graph.outputs().end(), value) != graph.outputs().end();
    return gradient_parts(consumers[value], stage_of_layer, stage_of_layer[value.layer.index()],
                          is_output);
  };

  std::map<std::pair<size_t, LayerId>, GradientPlace> place_of;  // by slot and reader
  num_parts_.assign(num_slots_, 0);
  parts_sent_.resize(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    input_needs_gradient_.push_back(!inputs_[i].is_model_input() &&
                                    from_weights[inputs_[i].layer.index()]);
    if (inputs_[i].is_model_input()) continue;
    for (const GradientPart& part : parts_of(inputs_[i])) {
      if (part.stage != stage_) continue;
      for (size_t turn = 0; turn < part.consumers.size(); ++turn)
        place_of[{i, part.consumers[turn]}] = {i, turn, parts_sent_[i].size()};
      parts_sent_[i].push_back(part.consumers.size());
    }
  }
  std::map<StageId, std::map<ValueRef, std::vector<GradientPlace>>> received;
  for (size_t k = 0; k < layers_.size(); ++k) {
    for (size_t o = 0; o < places_[k].num_outputs; ++o) {
      const ValueRef value = made_by_[k][o];
      const size_t slot = places_[k].first_output + o;
      for (const GradientPart& part : parts_of(value)) {
        const GradientPlace place{slot, num_parts_[slot]++, 0};
        if (part.stage != stage_)
          received[part.stage][value].push_back(place);
        else if (!part.consumers.empty())
          place_of[{slot, part.consumers.front()}] = place;
      }
    }
  }
  for (const auto& [peer, values] : received) {
    for (const auto& [value, places] : values)
      gradients_from_[peer].insert(gradients_from_[peer].end(), places.begin(), places.end());
  }
  for (size_t k = 0; k < layers_.size(); ++k) {
    for (const size_t slot : places_[k].sources) {
      const auto found = place_of.find({slot, layers_[k]});
      places_[k].gradient_places.push_back(found == place_of.end() ? GradientPlace{}
                                                                   : found->second);
    }
  }
}

void StageModule::find_chains() {
  std::vector<size_t> reader(num_slots_, places_.size());
  for (size_t i = places_.size(); i-- > 0;) {
    LayerPlace& place = places_[i];
    if (place.num_outputs == 1 && num_parts_[place.first_output] == 1 &&
        reader[place.first_output] < places_.size())
      place.next_in_chain = reader[place.first_output];
    for (const size_t slot : place.sources) reader[slot] = i;
  }
}

const std::vector<size_t>& StageModule::inputs_from(StageId from) const {
  const auto found = inputs_from_.find(from);
  return found == inputs_from_.end() ? kNone : found->second;
}

const std::vector<size_t>& StageModule::outputs_to(StageId to) const {
  const auto found = outputs_to_.find(to);
  return found == outputs_to_.end() ? kNone : found->second;
}

std::vector<StageId> StageModule::source_stages() const {
  std::vector<StageId> stages;
  for (const auto& [stage, positions] : inputs_from_) stages.push_back(stage);
  return stages;
}

std::vector<StageId> StageModule::target_stages() const {
  std::vector<StageId> stages;
  for (const auto& [stage, positions] : outputs_to_) stages.push_back(stage);
  return stages;
}

const std::vector<GradientPlace>& StageModule::gradients_from(StageId from) const {
  static const std::vector<GradientPlace> kNowhere;
  const auto found = gradients_from_.find(from);
  return found == gradients_from_.end() ? kNowhere : found->second;
}

std::vector<model::Shape> StageModule::weight_shapes() const {
  std::vector<model::Shape> shapes;
  for (const LayerId layer : layers_) {
    for (const model::ParameterSpec& weight : model_->layer(layer).parameters())
      shapes.push_back(weight.shape);
  }
  return shapes;
}

std::string StageModule::random_layer() const {
  for (const LayerId id : layers_) {
    if (model_->layer(id).is_random()) {
      return "the layer '" + model_->graph().layer(id).name + "' takes random numbers";
    }
  }
  return {};
}

Tensors StageModule::forward_layer(size_t i, TensorSpan weights, MutableTensorSpan buffers,
                                   TensorSpan arguments, const model::ForwardContext& context,
                                   const SeesLayer& sees_layer) const {
  if (places_[i].computed_in) return {};
  const graph::LayerNode& node = model_->graph().layer(layers_[i]);
  const size_t w = weight_offsets_[i];
  const size_t b = buffer_offsets_[i];
  model::ForwardContext layer_context = context;
  layer_context.seed = derive_seed(context.seed, hash_name(model_->seed_name(layers_[i])));
  if (!context.carried.empty()) {
    const size_t c = carried_offsets_[i];
    layer_context.carried = context.carried.subspan(c, carried_offsets_[i + 1] - c);
  }
  try {
    if (const auto piece = pieces_.find(i); piece != pieces_.end())
      return forward_piece(piece->second, weights, buffers, arguments, context, sees_layer);
    if (sees_layer)
      sees_layer(layers_[i], weights.subspan(w, weight_offsets_[i + 1] - w), arguments);
    Tensors results = model::forward_in(
        precisions_[i], model_->layer(layers_[i]), weights.subspan(w, weight_offsets_[i + 1] - w),
        buffers.subspan(b, buffer_offsets_[i + 1] - b), arguments, layer_context);
    PENSTOCK_CHECK(results.size() == places_[i].num_outputs, node.name, results.size(),
                   node.num_outputs);
    return results;
  } catch (const c10::OutOfMemoryError&) {  // its report says more than the layer
    throw;
  } catch (const c10::Error& error) {
    throw RuntimeError("layer '" + node.name + "' (" + node.kind +
                       "): " + error.what_without_backtrace());
  } catch (const Aborted&) {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw RuntimeError("layer '" + node.name + "' (" + node.kind + "): " + error.what());
  }
}

Tensors StageModule::forward_piece(const PiecePlace& place, TensorSpan weights,
                                   MutableTensorSpan buffers, TensorSpan arguments,
                                   const model::ForwardContext& context,
                                   const SeesLayer& sees_layer) const {
  const size_t end = place.first + place.layers->layers().size();
  const auto part = [&](auto all, const std::vector<size_t>& offsets) {
    return all.subspan(offsets[place.first], offsets[end] - offsets[place.first]);
  };
  const TensorSpan own_weights = part(weights, weight_offsets_);
  const MutableTensorSpan own_buffers = part(buffers, buffer_offsets_);
  if (!sees_layer && context.carried.empty() && place.piece->takes(arguments, context))
    return place.piece->forward(own_weights, own_buffers, arguments, context);
  model::ForwardContext own_context = context;
  if (!context.carried.empty()) own_context.carried = part(context.carried, carried_offsets_);
  return place.layers->forward(own_weights, own_buffers, arguments, own_context, {}, sees_layer);
}

Tensors StageModule::outputs_of(TensorSpan values) const {
  Tensors results;
  results.reserve(output_slots_.size());
  for (const size_t slot : output_slots_) results.push_back(values[slot]);
  return results;
}

Tensors StageModule::forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs,
                             const model::ForwardContext& context, const BeforeLayer& before_layer,
                             const SeesLayer& sees_layer) const {
  PENSTOCK_CHECK(inputs.size() == inputs_.size(), inputs.size(), inputs_.size());
  PENSTOCK_CHECK(weights.size() == weight_offsets_.back(), weights.size(), weight_offsets_.back());
  Tensors values(num_slots_);
  std::copy(inputs.begin(), inputs.end(), values.begin());
  Tensors arguments;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerPlace& place = places_[i];
    arguments.clear();
    for (const size_t k : place.arguments) arguments.push_back(values[place.sources[k]]);
    for (const size_t slot : place.frees) values[slot].reset();
    if (before_layer) before_layer(i);
    Tensors results = forward_layer(i, weights, buffers, arguments, context, sees_layer);
    std::move(results.begin(), results.end(),
              values.begin() + static_cast<std::ptrdiff_t>(place.first_output));
  }
  return outputs_of(values);
}

}  // namespace penstock::runtime
