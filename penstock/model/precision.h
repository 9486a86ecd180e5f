// How layers compute in a precision of 16 bits. A layer stays a function of the weights that it is
// given: what is decided here, once per model, is only the type in which each layer gets its
// weights and inputs.
//
//   const std::vector<LayerPrecision> precisions = layer_precisions(model, Precision::BFloat16);
//   Tensors outputs = forward_in(precisions[i], layer, weights, buffers, inputs, context);
//
// Between layers, and between stages, activations and their gradients have 16 bits. Layers that
// keep float32 (normalisation) have float32 weights and statistics and compute in float32. So does
// a layer one of whose operations libtorch does not have in 16 bits on this device: that is found
// by trying.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "penstock/model/model.h"
#include "penstock/util/numbers/precision.h"

namespace penstock::model {

struct LayerPrecision {
  at::ScalarType activations = at::kFloat;  ///< of outputs, and of inputs as they arrive
  at::ScalarType weights = at::kFloat;
  bool computes_in_float32 = false;  ///< inputs are converted before, outputs behind
  /// Each of its operations has the type that torch.autocast gives it: products 16 bits, norms and
  /// the like float32. Layers that would compute in float32 otherwise, on GPUs and on processors
  /// that multiply in 16 bits.
  bool autocasts = false;

  bool operator==(const LayerPrecision&) const = default;
};

at::ScalarType scalar_type(FloatType type);

/// Whether it computes in float32 in every precision, because it says so (float32_layers.h).
bool insists_on_float32(const Layer& layer);

/// One per layer. Layers with types of their own (MayHaveOwnTypes) get weights of these and compute
/// in them, whatever the precision. Of the others, in 16 bits each kind of layer is tried, forward
/// and backward on two samples: of layers of one kind with equally many inputs the one with the
/// fewest numbers, on `device`. Blocks for about as long as these take. Throws ConfigError when a
/// layer fails for another reason.
std::vector<LayerPrecision> layer_precisions(const Model& model, Precision precision,
                                             at::Device device = at::kCPU);

/// Whether some layer has types of 16 bits of its own, which hold in every precision
/// (MayHaveOwnTypes).
bool has_own_types(const Model& model);

/// The type of a layer's output; `activations`: of layers without types of their own.
at::ScalarType output_type(const Model& model, const graph::ValueRef& output,
                           at::ScalarType activations = at::kFloat);
/// Bytes of one number of a layer's output in that precision.
int64_t output_number_bytes(const Model& model, const graph::ValueRef& output, Precision precision);

/// Layer::forward() in that precision. `weights` have LayerPrecision::weights; inputs that are no
/// floating-point numbers go in as they are.
Tensors forward_in(const LayerPrecision& precision, const Layer& layer, TensorSpan weights,
                   MutableTensorSpan buffers, TensorSpan inputs, const ForwardContext& context);

/// A model's input as its layers take it: floating-point numbers in the type of activations.
at::Tensor as_activation(const at::Tensor& input, Precision precision);
/// What losses are computed of: differentiable; the tensor itself if it is float32.
at::Tensor as_float32(const at::Tensor& tensor);

}  // namespace penstock::model
