// The forward pass of one stage for one micro-batch, and its backward pass in one part (B) or in
// two (I, W). The gradients are bit for bit the same, and the same for every cut of the model into
// stages, because autograd never sums parts of a value's gradient from several layers: the graph is
// cut there (layer_tape.h). For I and W it is cut between any two layers, so that only the operands
// of W remain after I; for B chains of layers are not cut (LayerPlace::chain_end), which saves
// calls of the engine.
#pragma once

#include <functional>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/runtime/layer_tape.h"
#include "penstock/runtime/value_gradients.h"

namespace penstock::runtime {

/// Not thread-safe.
class StageTape {
 public:
  /// `cut_everywhere`: between any two layers.
  StageTape(const StageModule& module, bool cut_everywhere)
      : module_(&module), cut_everywhere_(cut_everywhere) {}

  /// The stage's outputs as plain tensors without a graph.
  Tensors forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs,
                  const model::ForwardContext& context, const BeforeLayer& before_layer = {});
  /// On the stage that makes the model's output: the loss of these outputs; its gradient is part of
  /// the backward pass.
  model::LossResult loss(TensorSpan outputs, const at::Tensor& targets, int64_t mini_batch_samples);

  /// Called whenever the gradients of some weights are complete: their places in `gradients`, the
  /// stage's flat list, out of which they may be taken.
  using Made = std::function<void(const std::vector<size_t>& places, Tensors& gradients)>;

  /// B: takes the gradients of the values out of `values` and adds those of the layers' inputs.
  /// Returns those of the stage's weights.
  Tensors backward(ValueGradients& values, const Made& made = {});
  /// I: the same, but all work that can be deferred is left for W.
  void backward_inputs(ValueGradients& values);
  /// W: the gradients of the stage's weights.
  Tensors backward_weights(const Made& made = {});

 private:
  /// A layer or a chain of layers.
  struct Segment {
    LayerTape tape;
    std::vector<GradientPlace> places;  ///< per input of the tape
    std::vector<size_t> weights;        ///< per weight of the tape: its place in the stage's list
  };
  /// The position in layers() of the last layer of the segment that layer `i` belongs to.
  size_t segment_of(size_t i) const { return cut_everywhere_ ? i : module_->places()[i].chain_end; }
  template <class Run>
  void for_each_segment(ValueGradients& values, Run&& run, const Made& made = {});
  void keep(const Segment& segment, Tensors gradients);

  const StageModule* module_;
  bool cut_everywhere_;
  /// Segments by the position of their last layer; entries of other layers are empty.
  std::vector<Segment> segments_;
  LayerTape loss_tape_;
  at::Tensor loss_gradient_;  ///< one, if there is a loss
  bool output_needs_gradient_ = false;
  Tensors weights_;  ///< gradients that are made
};

}  // namespace penstock::runtime
