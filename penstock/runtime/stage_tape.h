// The forward pass of one stage for one micro-batch, and its backward pass in one part (B) or in
// two (I, W). The gradients are bit for bit the same, and the same for every cut of the model into
// stages, because autograd never sums parts of a value's gradient from several layers: the graph is
// cut there (layer_tape.h). For I and W it is cut between any two layers, so that only the operands
// of W remain after I. For B chains of layers are cut only where many bytes of weights are behind,
// which saves calls of the engine, and between buckets where gradients leave while it goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "penstock/runtime/layer_tape.h"
#include "penstock/runtime/loss_tape.h"
#include "penstock/runtime/value_gradients.h"

namespace penstock::runtime {

/// By layer (position in StageModule::layers()): the last layer of the segment that it belongs to,
/// through which autograd goes in one call.
using SegmentEnds = std::vector<size_t>;
SegmentEnds cut_everywhere(const StageModule& module);
/// Between chains, and inside them where one call would make gradients of weights of more bytes
/// than that. INT64_MAX: between chains alone.
SegmentEnds cut_by_weights(const StageModule& module, int64_t most_bytes);
/// Between chains, and inside them where the next layer's weights are of another bucket.
/// `bucket_ends`: the weight behind the last one of each, ascending.
SegmentEnds cut_between_buckets(const StageModule& module, const std::vector<size_t>& bucket_ends);

/// Gradients of weights are float32, whatever the layers compute in. Not thread-safe.
class StageTape {
 public:
  /// Keeps references.
  StageTape(const StageModule& module, const SegmentEnds& segment_ends)
      : module_(&module), segment_ends_(&segment_ends) {}

  /// The stage's outputs as plain tensors without a graph.
  Tensors forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs,
                  const model::ForwardContext& context, const BeforeLayer& before_layer = {});
  /// On the stage that makes the model's output: the loss of it; its gradient is part of the
  /// backward pass, which computes all gradients times `scale`. As LossTape::forward().
  model::LossResult loss(const model::Loss& loss, at::Tensor output, const at::Tensor& targets,
                         const model::MiniBatchSize& mini_batch, double scale = 1);
  /// After the forward pass, on the stage that makes the model's output: whether the loss needs a
  /// gradient of it.
  bool output_needs_gradient() const { return output_needs_gradient_; }
  /// Before the backward pass: by how much the loss was scaled, there or in a later stage. The
  /// weights' gradients are divided by it.
  void set_loss_scale(double scale) { loss_scale_ = scale; }

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
  size_t segment_of(size_t i) const { return (*segment_ends_)[i]; }
  template <class Run>
  void for_each_segment(ValueGradients& values, Run&& run, const Made& made = {});
  void keep(const Segment& segment, Tensors gradients);

  const StageModule* module_;
  const SegmentEnds* segment_ends_;
  /// Segments by the position of their last layer; entries of other layers are empty.
  std::vector<Segment> segments_;
  LossTape loss_tape_;
  double loss_scale_ = 1;
  bool output_needs_gradient_ = false;
  Tensors weights_;  ///< gradients that are made
};

}  // namespace penstock::runtime
