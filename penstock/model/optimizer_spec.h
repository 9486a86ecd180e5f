// Which optimiser, and its parameters: a plain value without tensors.
//
//   OptimizerSpec spec{.name = "adam", .beta2 = 0.99};
#pragma once

#include <string>

namespace penstock::model {

struct OptimizerSpec {
  std::string name = "sgd";  ///< "sgd" or "adam"
  double momentum = 0.9;     ///< sgd
  double weight_decay = 0;   ///< added to the gradient (L2), as torch.optim does
  double beta1 = 0.9;        ///< adam
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

}  // namespace penstock::model
