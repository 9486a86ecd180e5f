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

void sort_unique(std::vector<ValueRef>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

StageModule::StageModule(const model::Model& model, const std::vector<StageId>& stage_of_layer,
                         StageId stage, const std::vector<model::LayerPrecision>& precisions)
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
  find_boundary(stage_of_layer);
  lay_out_values();
  order_gradients(stage_of_layer);
  find_chains();
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

void StageModule::lay_out_values() {
  num_slots_ = inputs_.size();
  std::map<ValueRef, size_t> slot_of;
  for (size_t i = 0; i < inputs_.size(); ++i) slot_of[inputs_[i]] = i;
  for (const LayerId id : layers_) {
    const graph::LayerNode& node = model_->graph().layer(id);
    LayerPlace& place = places_.emplace_back();
    for (const ValueRef value : node.inputs) {
      const size_t slot = slot_of.at(value);
      const auto found = std::find(place.sources.begin(), place.sources.end(), slot);
      place.arguments.push_back(static_cast<size_t>(found - place.sources.begin()));
      if (found == place.sources.end()) place.sources.push_back(slot);
    }
    place.first_output = num_slots_;
    place.num_outputs = static_cast<size_t>(node.num_outputs);
    for (int o = 0; o < node.num_outputs; ++o) slot_of[ValueRef{id, o}] = num_slots_++;
    maker_of_.resize(num_slots_ - inputs_.size(), places_.size() - 1);
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
      std::vector<LayerId>& readers = consumers[value];
      if (readers.empty() || readers.back() != LayerId{l}) readers.push_back(LayerId{l});
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
      const ValueRef value{layers_[k], static_cast<int>(o)};
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
    const size_t only_reader = reader[place.first_output];
    if (place.num_outputs == 1 && num_parts_[place.first_output] == 1 &&
        only_reader < places_.size())
      place.next_in_chain = only_reader;
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
                                   TensorSpan arguments,
                                   const model::ForwardContext& context) const {
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
    if (sees_layer) {
      const size_t first = weight_offsets_[i];
      sees_layer(layers_[i], weights.subspan(first, weight_offsets_[i + 1] - first), arguments);
    }
    Tensors results = forward_layer(i, weights, buffers, arguments, context);
    std::move(results.begin(), results.end(),
              values.begin() + static_cast<std::ptrdiff_t>(place.first_output));
  }
  return outputs_of(values);
}

}  // namespace penstock::runtime
