// The layers of one stage as one function: boundary tensors and weights in, boundary tensors out.
//
//   StageModule stage(model, stage_of_layer, StageId{1});
//   Tensors outputs = stage.forward(weights, buffers, inputs, {.training = true, .seed = derive_seed(seed, micro_batch)});
#pragma once

#include <map>
#include <vector>

#include "penstock/model/model.h"

namespace penstock::runtime {

using model::MutableTensorSpan;
using model::Tensors;
using model::TensorSpan;

/// Immutable; thread-safe; keeps a reference to the model, which must outlive it.
class StageModule {
 public:
  StageModule(const model::Model& model, const std::vector<StageId>& stage_of_layer, StageId stage);

  StageId stage() const { return stage_; }
  /// Ascending.
  const std::vector<LayerId>& layers() const { return layers_; }
  /// Values made elsewhere that the stage reads: model inputs first, then values of earlier stages; each once, ascending.
  const std::vector<graph::ValueRef>& inputs() const { return inputs_; }
  /// Values made here that later stages read or that are model outputs; each once, ascending.
  const std::vector<graph::ValueRef>& outputs() const { return outputs_; }
  /// Positions in inputs() of the values that stage `from` makes, ascending.
  const std::vector<size_t>& inputs_from(StageId from) const;
  /// Positions in outputs() of the values that stage `to` reads, ascending; the same values in the same order as its inputs_from(stage()).
  const std::vector<size_t>& outputs_to(StageId to) const;
  /// Stages that this one reads from / that read from it, ascending.
  std::vector<StageId> source_stages() const;
  std::vector<StageId> target_stages() const;
  /// Position in outputs() of each of the model's outputs that this stage makes.
  const std::vector<size_t>& model_outputs() const { return model_outputs_; }

  /// Weights / buffers of layer `i` of layers() are [offsets[i], offsets[i + 1]) of the stage's flat lists.
  const std::vector<size_t>& weight_offsets() const { return weight_offsets_; }
  const std::vector<size_t>& buffer_offsets() const { return buffer_offsets_; }

  /// outputs(), each [batch, ...]. `context.seed` is that of the micro-batch; each layer gets one derived from it and its name.
  /// Throws RuntimeError naming the layer when an operator fails.
  Tensors forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs, const model::ForwardContext& context) const;

 private:
  const model::Model* model_;
  StageId stage_;
  std::vector<LayerId> layers_;
  std::vector<graph::ValueRef> inputs_;
  std::vector<graph::ValueRef> outputs_;
  std::vector<size_t> model_outputs_;
  std::map<StageId, std::vector<size_t>> inputs_from_;
  std::map<StageId, std::vector<size_t>> outputs_to_;
  std::vector<size_t> weight_offsets_;
  std::vector<size_t> buffer_offsets_;
  /// Values live in one flat table: the stage's inputs, then every layer's outputs.
  std::vector<std::vector<size_t>> layer_inputs_;  ///< per layer: positions in the table
  std::vector<std::vector<size_t>> layer_frees_;   ///< per layer: positions that nobody reads after it
  std::vector<size_t> layer_outputs_;              ///< per layer: first position of its outputs
  std::vector<size_t> output_slots_;               ///< per stage output
  size_t num_slots_ = 0;
};

}  // namespace penstock::runtime
