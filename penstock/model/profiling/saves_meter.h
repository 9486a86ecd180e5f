// Which values the operations of a layer save for their gradients. Autograd does not tell, but who
// saves a tensor refers to it.
//
//   const SavesMeter meter(inputs);
//   const Tensors outputs = layer.forward(...);  // under grad mode
//   const profile::LayerSaves saves = meter.saves(inputs, outputs);
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/profile/saved_values.h"

namespace penstock::model::detail {

/// One layer's forward pass. The inputs are leaves, and nobody else takes or gives up references to
/// them meanwhile.
class SavesMeter {
 public:
  /// Before the forward pass.
  explicit SavesMeter(TensorSpan inputs);
  /// After it. An output whose only reference is that of `outputs` is not saved.
  profile::LayerSaves saves(TensorSpan inputs, TensorSpan outputs) const;

 private:
  struct Count {
    size_t tensor = 0;   ///< references to the tensor
    size_t storage = 0;  ///< tensors that share its memory
  };
  static Count count(const at::Tensor& tensor);

  std::vector<Count> before_;
};

}  // namespace penstock::model::detail
