// What a layer may say that attends to a source, by deriving from this besides Layer: how much each
// place of the target looks at each place of the source. Decoding with a coverage penalty asks for
// it (train/coverage.h).
//
//   const auto* attends = dynamic_cast<const Attends*>(&model.layer(id));
//   attends->shares(weights, inputs).shares;   // [batch, targets, sources]
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace penstock::model {

struct AttentionShares {
  at::Tensor shares;   ///< [batch, targets, sources], at least 0, with the sum 1 over the sources
  at::Tensor lengths;  ///< places of each source that are no padding, int64 [batch, 1]
};

class Attends {
 public:
  /// Of the same weights and inputs as Layer::forward() takes; behind a source's length they are 0.
  /// Thread-safe. Throws c10::Error as forward().
  virtual AttentionShares shares(std::span<const at::Tensor> weights,
                                 std::span<const at::Tensor> inputs) const = 0;

 protected:
  ~Attends() = default;
};

}  // namespace penstock::model
