// Which optimiser, and its parameters: a plain value without tensors.
//
//   OptimizerSpec spec{.name = "adam", .beta2 = 0.99};
#pragma once

#include <string>
#include <vector>

namespace penstock::model {

/// Parameters with a learning rate and a weight decay of their own.
struct ParameterGroup {
  std::vector<std::string> parameters;  ///< names in the state dict
  double rate_factor = 1;               ///< times the learning rate of the step
  double weight_decay = 0;
};

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
  double rate_factor = 1;  ///< times the learning rate of the step
  /// Empty: all parameters have the values above. Otherwise each is in exactly one group; names
  /// that the model does not train are allowed.
  std::vector<ParameterGroup> groups = {};
};

}  // namespace penstock::model
