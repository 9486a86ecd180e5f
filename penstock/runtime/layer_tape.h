// The autograd graph of one layer, or of a chain of layers, and one micro-batch, separated from
// those of other layers. Its backward pass can run in parts: first the gradients of the inputs
// (action I), later those of the weights (action W). No operation runs twice.
//
// W does only what I did not: I records the gradient that enters each operation with a weight as
// its operand (a matrix product, a convolution), and W runs only that operation, only for the
// weight. Autograd's engine asks an operation only for the gradients that are needed, and for the
// operations listed in layer_split.cpp the gradients of input and weight share no work. Weights of
// other operations get their gradients in I and leave nothing for W: normalisation, whose input's
// gradient needs the sums that are the weights' gradients; and a weight that a layer uses several
// times. Where no input needs a gradient (the first layer of the model) I does nothing and W does
// everything.
//
// Only the ends of the graph are kept: its memory is what the operations save; after I, only what
// the operations of W save.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock::runtime {

/// Not thread-safe. enter() each input, compute with what it returns and the weights given to use()
/// under grad mode, then leave(); then either backward() or backward_inputs() and
/// backward_weights().
class LayerTape {
 public:
  /// Begins the graph here: the tensor to compute with, sharing the value's memory. Without
  /// `needs_gradient` it takes no part in the graph.
  at::Tensor enter(const at::Tensor& value, bool needs_gradient);
  /// Weights of the forward pass.
  void use(model::TensorSpan weights);
  /// Ends the graph at the outputs, which are not kept.
  void leave(model::TensorSpan outputs);

  struct Gradients {
    model::Tensors inputs;  ///< as entered; undefined where none is needed or none arrives
    /// As given to use(); undefined where none arrives (or W will make it).
    model::Tensors weights;
  };
  /// The gradients of inputs and weights. `outputs`: the outputs' gradients, undefined where there
  /// is none.
  Gradients backward(model::Tensors outputs);
  /// The inputs' gradients, and those of the weights that cannot be deferred; keeps what
  /// backward_weights() needs and drops the rest.
  Gradients backward_inputs(model::Tensors outputs);
  /// The gradients of the other weights; drops everything.
  model::Tensors backward_weights();

 private:
  using Edges = std::vector<torch::autograd::Edge>;
  /// An operation that W runs, or all of them if there is no I.
  struct Rest {
    Edges roots;
    model::Tensors gradients;
    std::vector<size_t> weights;
  };

  bool wants_input_gradients() const;
  /// The outputs that have a gradient and a graph.
  Rest roots_of(model::Tensors outputs);

  Edges inputs_;   ///< per input; no function where it needs no gradient
  Edges weights_;  ///< per weight
  Edges outputs_;  ///< per output; no function where it has no graph
  std::vector<Rest> rest_;
};

}  // namespace penstock::runtime
