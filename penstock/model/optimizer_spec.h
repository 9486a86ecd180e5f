// Which optimiser, and its parameters: a plain value without tensors.
//
//   OptimizerSpec spec{.name = "adam", .beta2 = 0.99};
#pragma once

#include <string>

namespace penstock::model {

struct OptimizerSpec {
  std::string name = "sgd";  ///< "sgd", "adam" or "adamw"
  double momentum = 0.9;     ///< sgd
  /// sgd: the step looks ahead along the momentum (Sutskever et al. 2013, as torch.optim does).
  bool nesterov = false;
  /// Added to the gradient (L2), as torch.optim does; adamw: taken off the weight.
  double weight_decay = 0;
  double beta1 = 0.9;  ///< adam, adamw
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

}  // namespace penstock::model
