// The layers of one stage as one function: boundary tensors and weights in, boundary tensors out.
//
//   StageModule stage(model, stage_of_layer, StageId{1});
//   Tensors outputs = stage.forward(weights, buffers, inputs,
//       {.training = true, .seed = derive_seed(seed, micro_batch)});
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/model/piece.h"
#include "penstock/model/precision.h"

namespace penstock::runtime {

using model::MutableTensorSpan;
using model::Tensors;
using model::TensorSpan;

/// Called before each layer's forward pass, with its position in layers(): the layer's weights may
/// still change here.
using BeforeLayer = std::function<void(size_t layer)>;
/// Called behind that, with what the layer reads.
using SeesLayer = std::function<void(LayerId layer, TensorSpan weights, TensorSpan inputs)>;

/// Where one layer's part of a value's gradient goes. A value made in the stage: `slot` is its
/// place in the stage's table of values, `position` the part's position in the sum. A value made
/// elsewhere: `slot` is its place in inputs(), `part` says which of the parts that the stage sends
/// for it, `position` is the position in that part.
struct GradientPlace {
  size_t slot = 0;
  size_t position = 0;
  size_t part = 0;
};

/// The place of one layer in a stage. Values are in one flat table: the stage's inputs, then every
/// layer's outputs.
struct LayerPlace {
  /// Distinct values that the layer reads: positions in the table.
  std::vector<size_t> sources;
  std::vector<size_t> arguments;               ///< per argument: position in `sources`
  std::vector<GradientPlace> gradient_places;  ///< per source
  std::vector<size_t> frees;                   ///< values that nobody reads after it
  size_t first_output = 0;                     ///< in the table
  size_t num_outputs = 1;
  /// The layer of the stage (position in layers()) behind this one in a chain: the only one that
  /// reads its only output. No gradients are summed inside a chain. Nothing at the end of one.
  std::optional<size_t> next_in_chain = {};
  /// Of a layer of a piece that is not its last: the position of the last, which computes all of
  /// them. Such a layer reads and makes nothing itself.
  std::optional<size_t> computed_in = {};
};

/// A model cut in three, of which the middle stage, StageId{1}, has these layers.
std::vector<StageId> stages_around(LayerId first, LayerId last, int num_layers);

/// Whether a stage's layers run together where they are a piece (model/piece.h).
enum class Pieces : uint8_t { Together, LayerByLayer };

/// Immutable; thread-safe; keeps a reference to the model, which must outlive it.
class StageModule {
 public:
  /// `precisions`: of the model's layers; empty: float32. Pieces run layer by layer in others.
  StageModule(const model::Model& model, const std::vector<StageId>& stage_of_layer, StageId stage,
              const std::vector<model::LayerPrecision>& precisions = {},
              Pieces pieces = Pieces::Together);

  StageId stage() const { return stage_; }
  /// Ascending.
  const std::vector<LayerId>& layers() const { return layers_; }
  /// Values made elsewhere that the stage reads: model inputs first, then values of earlier stages;
  /// each once, ascending.
  const std::vector<graph::ValueRef>& inputs() const { return inputs_; }
  /// Values made here that later stages read or that are model outputs; each once, ascending.
  const std::vector<graph::ValueRef>& outputs() const { return outputs_; }
  /// Positions in inputs() of the values that stage `from` makes, ascending.
  const std::vector<size_t>& inputs_from(StageId from) const;
  /// Positions in outputs() of the values that stage `to` reads, ascending; the same values in the
  /// same order as its inputs_from(stage()).
  const std::vector<size_t>& outputs_to(StageId to) const;
  /// Stages that this one reads from / that read from it, ascending.
  std::vector<StageId> source_stages() const;
  std::vector<StageId> target_stages() const;
  /// Position in outputs() of each of the model's outputs that this stage makes.
  const std::vector<size_t>& model_outputs() const { return model_outputs_; }

  /// Weights / buffers of layer `i` of layers() are [offsets[i], offsets[i + 1]) of the stage's
  /// flat lists.
  const std::vector<size_t>& weight_offsets() const { return weight_offsets_; }
  std::vector<model::Shape> weight_shapes() const;
  const std::vector<size_t>& buffer_offsets() const { return buffer_offsets_; }
  /// The same for what layers carry from window to window (Layer::carried()).
  const std::vector<size_t>& carried_offsets() const { return carried_offsets_; }
  bool carries() const { return carried_offsets_.back() > 0; }

  /// The position of the first weight of layer `i` of layers() in the flat list of the whole
  /// model's weights, layer by layer; and the length of that list.
  size_t first_model_weight(size_t i) const { return model_weights_[i]; }
  size_t num_model_weights() const { return num_model_weights_; }

  /// The type of each weight's versions.
  const std::vector<at::ScalarType>& weight_types() const { return weight_types_; }

  const model::Model& model() const { return *model_; }

  const std::vector<LayerPlace>& places() const { return places_; }
  size_t num_slots() const { return num_slots_; }
  /// The layer (position in layers()) that makes the value of the table; only values made here.
  size_t maker_of(size_t slot) const { return maker_of_[slot - inputs_.size()]; }
  /// Per value of the table that is made here: how many parts its gradient has (gradient_order.h).
  size_t num_parts(size_t slot) const { return num_parts_[slot]; }
  /// Per value of inputs(), for each part of its gradient that the stage sends: how many of its
  /// layers add to it. Empty for model inputs.
  const std::vector<size_t>& parts_sent(size_t input) const { return parts_sent_[input]; }
  /// Whether the value depends on a weight; if not, nobody needs its gradient. Model inputs: no.
  bool input_needs_gradient(size_t input) const { return input_needs_gradient_[input]; }
  /// What stage `from`, which reads our outputs, sends back: value by value as outputs_to(from),
  /// the parts of each in the order of its sum.
  const std::vector<GradientPlace>& gradients_from(StageId from) const;
  /// Where the gradient of the loss goes; only on the stage that makes the model's output.
  GradientPlace loss_place() const { return {output_slots_[model_outputs_.front()], 0, 0}; }

  /// That a layer takes random numbers in training, naming the first one; empty: none does.
  std::string random_layer() const;

  /// One layer's forward pass, or that of the piece whose last layer it is. Throws RuntimeError
  /// naming the layer when an operator fails.
  Tensors forward_layer(size_t i, TensorSpan weights, MutableTensorSpan buffers,
                        TensorSpan arguments, const model::ForwardContext& context,
                        const SeesLayer& sees_layer = {}) const;
  /// The values of outputs(), from the table.
  Tensors outputs_of(TensorSpan values) const;
  /// outputs(), each [batch, ...]; under autograd they get one graph from the weights and inputs.
  /// `context.seed` is that of the micro-batch; each layer gets a seed derived from it and
  /// Model::seed_name(). `context.carried` has those of all layers. Throws RuntimeError naming the
  /// layer when an operator fails.
  Tensors forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs,
                  const model::ForwardContext& context, const BeforeLayer& before_layer = {},
                  const SeesLayer& sees_layer = {}) const;

 private:
  /// A piece of the stage, at the position of its last layer.
  struct PiecePlace {
    const model::Piece* piece = nullptr;
    size_t first = 0;                     ///< position of its first layer
    std::unique_ptr<StageModule> layers;  ///< the same layer by layer
  };

  void find_pieces(const std::vector<model::LayerPrecision>& precisions);
  /// The layer as who reads a value: of a piece it is the last one.
  LayerId reader(LayerId layer) const;
  void add_place(size_t i, const std::vector<graph::ValueRef>& reads,
                 const std::vector<graph::ValueRef>& makes,
                 std::map<graph::ValueRef, size_t>& slot_of);
  Tensors forward_piece(const PiecePlace& place, TensorSpan weights, MutableTensorSpan buffers,
                        TensorSpan arguments, const model::ForwardContext& context,
                        const SeesLayer& sees_layer) const;
  void find_boundary(const std::vector<StageId>& stage_of_layer);
  void lay_out_values();
  void order_gradients(const std::vector<StageId>& stage_of_layer);
  void find_chains();

  const model::Model* model_;
  StageId stage_;
  std::vector<LayerId> layers_;
  std::vector<graph::ValueRef> inputs_;
  std::vector<graph::ValueRef> outputs_;
  std::vector<size_t> model_outputs_;
  std::map<StageId, std::vector<size_t>> inputs_from_;
  std::map<StageId, std::vector<size_t>> outputs_to_;
  std::vector<model::LayerPrecision> precisions_;  ///< by position in layers_
  std::vector<at::ScalarType> weight_types_;
  std::vector<size_t> weight_offsets_;
  std::vector<size_t> buffer_offsets_;
  std::vector<size_t> carried_offsets_;
  std::vector<size_t> model_weights_;
  size_t num_model_weights_ = 0;
  std::vector<LayerPlace> places_;
  std::map<size_t, PiecePlace> pieces_;                ///< by the position of the last layer
  std::vector<std::vector<graph::ValueRef>> made_by_;  ///< by position: the values of the table
  std::vector<LayerId> reader_of_;    ///< of all the model's layers; empty: themselves
  std::vector<size_t> output_slots_;  ///< per stage output: its place in the table
  std::vector<size_t> maker_of_;
  std::vector<size_t> num_parts_;  ///< per value of the table
  std::vector<std::vector<size_t>> parts_sent_;
  std::vector<bool> input_needs_gradient_;
  std::map<StageId, std::vector<GradientPlace>> gradients_from_;
  size_t num_slots_ = 0;
};

}  // namespace penstock::runtime
