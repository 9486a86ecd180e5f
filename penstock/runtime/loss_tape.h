// The loss of one micro-batch, with a graph of its own: it begins at the model's output.
#pragma once

#include "penstock/model/loss.h"
#include "penstock/runtime/layer_tape.h"

namespace penstock::runtime {

/// Not thread-safe.
class LossTape {
 public:
  /// The loss of an output, without its graph. backward() is that of the loss times `scale`. Of an
  /// output that nobody else has, the loss may take the memory.
  model::LossResult forward(const model::Loss& loss, at::Tensor output, bool needs_gradient,
                            const at::Tensor& targets, const model::MiniBatchSize& mini_batch,
                            double scale = 1);
  /// Whether there is a loss, whose gradient was not taken yet.
  bool is_open() const { return gradient_.defined(); }
  /// The output's gradient; undefined where it needs none. Once.
  at::Tensor backward();

 private:
  LayerTape tape_;
  at::Tensor gradient_;  ///< the scale
};

}  // namespace penstock::runtime
