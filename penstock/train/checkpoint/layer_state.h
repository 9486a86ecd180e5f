// What a checkpoint has of one layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace penstock::train {

struct LayerState {
  /// Whether this rank has the layer's state; otherwise the rest is empty.
  bool here = true;
  /// In the order of Layer::parameters().
  std::vector<at::Tensor> weights = {};
  std::vector<at::Tensor> buffers = {};  ///< in the order of Layer::buffers()
  /// In the order of Layer::carried(), of all samples of a mini-batch; empty: nothing is carried.
  std::vector<at::Tensor> carried = {};
  std::map<std::string, std::vector<at::Tensor>> optimizer = {};  ///< state name -> one per weight
};

}  // namespace penstock::train
