// The gradients of one mini-batch on one worker, summed over its micro-batches.
#pragma once

#include <vector>

#include "penstock/model/layer.h"

namespace penstock::runtime {

/// Not thread-safe: one worker owns it.
class GradientBuffer {
 public:
  explicit GradientBuffer(size_t count) : sums_(count) {}

  /// Adds the gradients of one micro-batch; undefined ones add nothing. Keeps references, copies nothing for the first micro-batch.
  void add(model::Tensors gradients);
  /// The sums (undefined where nothing was added), to be read only; the buffer is empty afterwards.
  model::Tensors take();
  /// The same, contiguous and not shared with anybody, so that the caller may write to them.
  model::Tensors take_exclusive();

 private:
  model::Tensors sums_;
};

}  // namespace penstock::runtime
