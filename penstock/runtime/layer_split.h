// Finds out which part of a layer's backward pass can be deferred (layer_tape.h). Internal to
// runtime.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <vector>

#include "penstock/model/torch_compat.h"

namespace penstock::runtime {

/// An operation whose part for these weights can run separately, later.
struct Deferred {
  model::NodePointer operation;
  std::vector<size_t> weights;
};

struct LayerSplit {
  std::vector<Deferred> deferred;
  /// The operations above an input that are not deferred: once the inputs' gradients are made, they
  /// do not run again.
  std::vector<model::NodePointer> done;
};

/// Walks the graph from `roots` down to `inputs` and `weights` (edges without a function are
/// ignored). The gradient of every weight that is not deferred must be made together with the
/// inputs' gradients. O(nodes and edges of the layer's graph).
LayerSplit split_layer(const std::vector<torch::autograd::Edge>& roots,
                       const std::vector<torch::autograd::Edge>& inputs,
                       const std::vector<torch::autograd::Edge>& weights);

}  // namespace penstock::runtime
