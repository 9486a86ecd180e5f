#include "penstock/runtime/stage_module.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>

#include "penstock/util/check.h"
#include "penstock/util/rng.h"

namespace penstock::runtime {

using graph::ValueRef;

namespace {

const std::vector<size_t> kNone;

size_t position_of(const std::vector<ValueRef>& values, ValueRef value) {
  return static_cast<size_t>(std::lower_bound(values.begin(), values.end(), value) - values.begin());
}

void sort_unique(std::vector<ValueRef>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

StageModule::StageModule(const model::Model& model, const std::vector<StageId>& stage_of_layer, StageId stage)
    : model_(&model), stage_(stage) {
  const graph::ModelGraph& graph = model.graph();
  PENSTOCK_CHECK(stage_of_layer.size() == graph.layers().size(), stage_of_layer.size(), graph.layers().size());
  for (int l = 0; l < graph.num_layers(); ++l) {
    if (stage_of_layer[static_cast<size_t>(l)] == stage) layers_.push_back(LayerId{l});
  }
  const auto here = [&](ValueRef value) { return !value.is_model_input() && stage_of_layer[value.layer.index()] == stage; };

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
    if (cross.from == stage) outputs_.push_back(cross.value);
  }
  sort_unique(outputs_);
  for (const auto& cross : crossing) {
    if (cross.from == stage) outputs_to_[cross.to].push_back(position_of(outputs_, cross.value));
    if (cross.to == stage) inputs_from_[cross.from].push_back(position_of(inputs_, cross.value));
  }
  for (auto& [peer, positions] : outputs_to_) std::sort(positions.begin(), positions.end());
  for (auto& [peer, positions] : inputs_from_) std::sort(positions.begin(), positions.end());
  for (const ValueRef value : graph.outputs()) {
    if (here(value)) model_outputs_.push_back(position_of(outputs_, value));
  }

  num_slots_ = inputs_.size();
  std::map<ValueRef, size_t> slot_of;
  for (size_t i = 0; i < inputs_.size(); ++i) slot_of[inputs_[i]] = i;
  weight_offsets_.push_back(0);
  buffer_offsets_.push_back(0);
  for (const LayerId id : layers_) {
    std::vector<size_t>& slots = layer_inputs_.emplace_back();
    for (const ValueRef value : graph.layer(id).inputs) slots.push_back(slot_of.at(value));
    layer_outputs_.push_back(num_slots_);
    for (int o = 0; o < graph.layer(id).num_outputs; ++o) slot_of[ValueRef{id, o}] = num_slots_++;
    weight_offsets_.push_back(weight_offsets_.back() + model.layer(id).parameters().size());
    buffer_offsets_.push_back(buffer_offsets_.back() + model.layer(id).buffers().size());
  }
  for (const ValueRef value : outputs_) output_slots_.push_back(slot_of.at(value));

  // A value that nobody reads any more is dropped at once, as it would be in a hand-written forward function.
  std::vector<bool> last_use_seen(num_slots_, false);
  for (const size_t slot : output_slots_) last_use_seen[slot] = true;
  layer_frees_.resize(layers_.size());
  for (size_t i = layers_.size(); i-- > 0;) {
    for (const size_t slot : layer_inputs_[i]) {
      if (last_use_seen[slot]) continue;
      last_use_seen[slot] = true;
      layer_frees_[i].push_back(slot);
    }
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

Tensors StageModule::forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs, const model::ForwardContext& context) const {
  PENSTOCK_CHECK(inputs.size() == inputs_.size(), inputs.size(), inputs_.size());
  PENSTOCK_CHECK(weights.size() == weight_offsets_.back(), weights.size(), weight_offsets_.back());
  Tensors values(num_slots_);
  std::copy(inputs.begin(), inputs.end(), values.begin());
  Tensors arguments;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const graph::LayerNode& node = model_->graph().layer(layers_[i]);
    arguments.clear();
    for (const size_t slot : layer_inputs_[i]) arguments.push_back(values[slot]);
    for (const size_t slot : layer_frees_[i]) values[slot].reset();
    model::ForwardContext layer_context = context;
    layer_context.seed = derive_seed(context.seed, hash_name(node.name));
    try {
      const size_t w = weight_offsets_[i];
      const size_t b = buffer_offsets_[i];
      Tensors results = model_->layer(layers_[i])
                            .forward(weights.subspan(w, weight_offsets_[i + 1] - w), buffers.subspan(b, buffer_offsets_[i + 1] - b),
                                     arguments, layer_context);
      PENSTOCK_CHECK(results.size() == static_cast<size_t>(node.num_outputs), node.name, results.size(), node.num_outputs);
      std::move(results.begin(), results.end(), values.begin() + static_cast<std::ptrdiff_t>(layer_outputs_[i]));
    } catch (const c10::Error& error) {
      throw RuntimeError("layer '" + node.name + "' (" + node.kind + "): " + error.what_without_backtrace());
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw RuntimeError("layer '" + node.name + "' (" + node.kind + "): " + error.what());
    }
  }
  Tensors results;
  results.reserve(output_slots_.size());
  for (const size_t slot : output_slots_) results.push_back(values[slot]);
  return results;
}

}  // namespace penstock::runtime
