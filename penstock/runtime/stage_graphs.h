// The forward and the backward pass of a stage as graphs of the device (CUDA graphs): all kernels
// of F, or of B, in one call, for stages whose launches take the host longer than the GPU needs to
// compute. The loss, sums of gradients and the optimiser's step stay outside.
//
// A graph works on the same memory each time, so a micro-batch has one of its own from F to B. What
// leaves the stage is copied out of it. Results have the bits of the passes that were recorded.
// Internal to runtime.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/device/device_stream.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/stage_tape.h"

namespace penstock::runtime {

/// Tensors by the stage that they come from or go to.
using ByStage = std::map<StageId, Tensors>;

/// F and B of one micro-batch at a time. Not thread-safe: its worker owns it.
class StageGraph {
 public:
  /// Keeps references to all but `ends`; `buffers` are the replica's, which F changes in place.
  StageGraph(const StageModule& module, SegmentEnds ends, model::DeviceStream& stream,
             MutableTensorSpan buffers)
      : module_(module), ends_(std::move(ends)), stream_(stream), buffers_(buffers) {}

  /// Whether it was recorded with these weights, and inputs of these sizes.
  bool fits(TensorSpan weights, TensorSpan inputs) const;

  /// Before each F and B: places what they read, and the first time records them. Throws what
  /// recording throws; then nothing has happened.
  void prepare_forward(TensorSpan weights, TensorSpan inputs, const model::ForwardContext& context);
  /// `received`: gradients as later stages have sent them; that of the loss may be undefined.
  void prepare_backward(const ByStage& received, const at::Tensor& loss_gradient);
  /// Whether both have been recorded.
  bool is_complete() const { return backward_ != nullptr; }

  /// F: the stage's outputs, which its next F overwrites.
  const Tensors& forward();
  /// Whether the loss needs a gradient of the model's output.
  bool output_needs_gradient() const { return output_needs_gradient_; }

  struct Made {
    Tensors weights;   ///< gradients of the stage's weights
    ByStage messages;  ///< gradients for the stages that made the inputs
  };
  /// B: what it makes is overwritten by its next B.
  const Made& backward();

  /// F's inputs, and the buffers as they were before it; the latter until B is recorded.
  TensorSpan inputs() const { return inputs_; }
  TensorSpan buffers_before() const { return buffers_before_; }

 private:
  void record_forward(TensorSpan weights, const model::ForwardContext& context);
  void record_backward();

  const StageModule& module_;
  SegmentEnds ends_;
  model::DeviceStream& stream_;
  MutableTensorSpan buffers_;
  std::shared_ptr<model::GraphMemory> memory_;
  Tensors weights_;
  Tensors inputs_;
  Tensors outputs_;
  Tensors buffers_before_;
  std::optional<StageTape> tape_;
  bool output_needs_gradient_ = false;
  ByStage received_;
  at::Tensor loss_gradient_;
  Made made_;
  std::unique_ptr<model::DeviceGraph> forward_;
  std::unique_ptr<model::DeviceGraph> backward_;
};

/// Those of a replica; as many as it has micro-batches in flight. They live as long as the
/// pipeline.
class StageGraphs {
 public:
  StageGraphs(const StageModule& module, model::DeviceStream& stream);

  /// One for a forward pass with these weights and inputs; null where it has to be made without.
  /// The first passes are: they set up what libtorch's libraries keep.
  StageGraph* take(TensorSpan weights, TensorSpan inputs, const SegmentEnds& ends,
                   Tensors& buffers);
  /// After its B, or when its micro-batch goes on without it.
  void give_back(StageGraph& graph);
  /// From now on take() has none; the memory of those that are given back is free.
  void refuse(std::string why);
  /// No micro-batch is in flight: those that a run has left half recorded go.
  void begin_run();
  /// Why passes are made without; empty: they are not.
  const std::string& obstacle() const { return obstacle_; }

 private:
  const StageModule& module_;
  model::DeviceStream& stream_;
  std::string obstacle_;
  int passes_ = 0;
  Tensors buffers_;  ///< the replica's, where they stay
  std::vector<std::unique_ptr<StageGraph>> graphs_;
  std::vector<StageGraph*> free_;
};

}  // namespace penstock::runtime
