// One tensor of a message in the coding of its boundary (plan/boundary_coding.h). Pure functions of
// the tensor on the CPU, thread-safe; the same bits on every machine of a kind.
//
//   const TensorLayout travels = coded_layout(layout, coding);
//   at::Tensor sent = encode(value, coding, {});              // of `travels`
//   at::Tensor value = decode(sent, layout, coding);          // of `layout`
//
// Numbers that are not floating-point travel as they are, and so do those of 16 bits under a coding
// of 16 bits, and under a subspace what is no token wider than its rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "penstock/plan/boundary_coding.h"
#include "penstock/runtime/fabric/message.h"

namespace penstock::runtime {

TensorLayout coded_layout(const TensorLayout& layout, const plan::BoundaryCoding& coding);

/// `seed`: numbers of 8 bits are rounded at random, by it; nothing: to the nearest. The result may
/// be the tensor itself.
at::Tensor encode(const at::Tensor& tensor, const plan::BoundaryCoding& coding,
                  std::optional<uint32_t> seed);
/// `layout`: of the tensor that was encoded.
at::Tensor decode(const at::Tensor& coded, const TensorLayout& layout,
                  const plan::BoundaryCoding& coding);

}  // namespace penstock::runtime
