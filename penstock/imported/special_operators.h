// Operators that are written out here, because libtorch's own draw random numbers without our seed,
// or lack something. Internal to imported.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <vector>

namespace penstock::imported {

/// Zeroes with the given probability, the rest scaled.
at::Tensor dropout_mask(at::IntArrayRef sizes, const at::Tensor& like, double probability,
                        at::Generator generator);
/// query, key, value, mask, dropout, is_causal, scale, enable_gqa as in
/// torch.nn.functional.scaled_dot_product_attention, written out. `keep`: the dropout's mask, or
/// undefined.
at::Tensor attention(const std::vector<c10::IValue>& arguments, const at::Tensor& keep);
/// What becomes of an operator's arguments, its results.
using WrittenOut = std::vector<c10::IValue> (*)(const std::vector<c10::IValue>& arguments);
/// Operators of which libtorch 1.13 has no derivative, made of others; null: none of them.
WrittenOut written_out(std::string_view target);
/// As torch.nn.functional.batch_norm: one number per channel has no variance, and would make the
/// running one NaN. Throws RuntimeError.
void check_batch_norm(const std::vector<c10::IValue>& arguments);

}  // namespace penstock::imported
