// What a layer computes, as counts instead of measured times: arithmetic and memory traffic,
// independent of any device. Data only.
//
//   Operation multiply{.kind = OperationKind::Matmul, .flops = 2 * m * n * k,
//       .bytes = 4 * (m * k + k * n + m * n)};
//   int64_t ns = operation_ns(multiply, device);   // profile/roofline.h
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::profile {

/// Operations of one kind reach a similar share of a device's peaks.
enum class OperationKind : uint8_t {
  Elementwise,    ///< every number once: activations, additions, copies, pooling, optimiser steps
  Normalization,  ///< reductions over the tensor and a pass that uses them
  Matmul,
  Convolution,
};

/// One kernel, in single precision. A multiplication and an addition are two flops.
struct Operation {
  OperationKind kind = OperationKind::Elementwise;
  int64_t flops = 0;
  int64_t bytes = 0;  ///< read and written, each tensor once per pass over it
  /// Convolution: products that are summed into one output, channels times window. 0 for windows of
  /// one pixel: no neighbours to gather.
  int64_t products_per_output = 0;
  /// Convolution: the same result from transformed tiles (Winograd's F(4x4, 3x3) and F(4x4, 5x5)),
  /// where the shapes allow it: 36 or 64 products per 16 outputs and channel pair instead of 144 or
  /// 400, while the tensors are written and read once more in transformed form. 0: not possible.
  int64_t transformed_flops = 0;
  int64_t transformed_bytes = 0;  ///< of the transformed tensors

  bool operator==(const Operation&) const = default;
};

/// What a layer does with one micro-batch.
struct LayerWork {
  std::vector<Operation> forward = {};
  std::vector<Operation> backward_weights = {};  ///< always done by a layer that has weights
  /// Done when an earlier layer or input needs a gradient.
  std::vector<Operation> backward_inputs = {};
  /// Allocated by forward and kept for backward, outputs included; views keep nothing.
  int64_t stash_bytes = 0;
  /// Whether the gradients need the inputs, and the outputs (saved_values.h).
  bool saves_inputs = true;
  bool saves_outputs = true;
  /// The same of each input and output; empty: of all alike, as above.
  std::vector<bool> saved_inputs = {};
  std::vector<bool> saved_outputs = {};
  bool is_view = false;  ///< the outputs share the first input's memory

  bool operator==(const LayerWork&) const = default;
};

}  // namespace penstock::profile
