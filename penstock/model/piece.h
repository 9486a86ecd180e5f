// Layers of a model that are computed as one, where somebody has code for them together, such as a
// compiler (compiled/). Each of them stays a layer of the model, with its name, its weights and its
// place in checkpoints; only its forward and backward pass are those of the piece.
//
//   const InPiece* in = dynamic_cast<const InPiece*>(&model.layer(id));
//   if (in != nullptr && in->piece().last() == id) outputs = in->piece().forward(...);
#pragma once

#include "penstock/model/layer.h"
#include "penstock/util/ids.h"

namespace penstock::model {

/// Layers first() to last() of a model, all of one stage. Values are those of a stage of these
/// layers alone (runtime/stage_module.h): what they read that others make, model inputs first, and
/// what others read of them. Immutable; thread-safe.
class Piece {
 public:
  virtual ~Piece() = default;
  virtual LayerId first() const = 0;
  virtual LayerId last() const = 0;
  /// Whether there is code for these inputs. If not, the layers run one by one.
  virtual bool takes(TensorSpan inputs, const ForwardContext& context) const = 0;
  /// As Layer::forward(), with the weights and buffers of all its layers, in their order.
  virtual Tensors forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs,
                          const ForwardContext& context) const = 0;
};

/// Derived from by layers of a piece, besides Layer.
class InPiece {
 public:
  virtual const Piece& piece() const = 0;

 protected:
  ~InPiece() = default;
};

}  // namespace penstock::model
