// What is known of PyTorch's operators by their names. Internal to imported.
//
//   is("torch.ops.aten.add.Tensor", "add");
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <string_view>

#include "penstock/exported/program.h"

namespace penstock::imported {

/// "torch.ops.aten.add.Tensor"; nothing where this libtorch lacks it.
std::optional<c10::OperatorHandle> find_operator(const std::string& target);
/// Whether it is any overload of ATen's operator of that name.
bool is(std::string_view target, std::string_view name);

inline constexpr std::string_view kAttention = "scaled_dot_product_attention";

/// Operators that make each number of the numbers in its place, which are broadcast to it.
inline constexpr std::string_view kNumberByNumber =
    "__and__ __or__ _to_copy abs add addcdiv addcmul alias atan atan2 bitwise_and "
    "bitwise_not bitwise_or celu clamp clamp_max clamp_min clip clone contiguous copy cos "
    "cosh detach div divide elu eq erf exp expm1 floor floor_divide fmod full_like ge gelu "
    "gt hardsigmoid hardswish hardtanh isfinite isinf isnan le leaky_relu lerp lift_fresh "
    "lift_fresh_copy log log1p log2 log_sigmoid logical_and logical_not logical_or "
    "logical_xor logit lt masked_fill maximum minimum mish mul multiply nan_to_num ne neg "
    "negative ones_like positive pow reciprocal relu relu6 remainder round rsqrt rsub selu "
    "sgn sigmoid sign silu sin sinh softplus softsign sqrt square sub subtract tan tanh "
    "threshold true_divide trunc where xlogy zeros_like";

/// Operators of which a file from elsewhere must not make use: they open files, or reach memory
/// beyond their tensors.
bool is_forbidden(std::string_view target);
/// Whether the node draws numbers without taking a generator, and has no form of ours. In
/// evaluation mode (training=False) some draw none.
bool is_unseeded(const exported::Node& node);
/// Whether the operator has a derivative in PyTorch, but none in this libtorch (Debian's 1.13).
bool lacks_derivative(std::string_view target);
/// Whether the results are numbers of the arguments in other places.
bool keeps_numbers(std::string_view target);
bool draws_uniform(std::string_view target);
bool draws_normal(std::string_view target);
bool is_dropout(std::string_view target);
/// Products and convolutions: torch.autocast computes them in 16 bits.
bool is_product(std::string_view target);
/// Outputs may be an input itself or a view of it, though the schema does not say so.
bool may_hand_through(std::string_view target);
/// Whether the operator averages statistics of its input into its arguments 3 and 4, though the
/// schema does not say so.
bool keeps_running_statistics(std::string_view target);
bool is_view_only(std::string_view target);
/// The overload for packed sequences, whose arguments come in another order.
bool is_packed_recurrent(std::string_view target);
/// Dropout between layers, which the operator itself would draw without our seed.
bool is_recurrent_with_dropout(const exported::Node& node);
/// Whether a constant argument of that name, or without names at that place, is above 0.
bool is_positive(const exported::Node& node, std::string_view name, size_t position);

}  // namespace penstock::imported
