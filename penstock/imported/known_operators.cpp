#include "penstock/imported/known_operators.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <variant>

namespace penstock::imported {
namespace {

/// "torch.ops.aten.add.Tensor" -> {"aten::add", "Tensor"}; nothing for another target.
std::optional<c10::OperatorName> operator_name(std::string_view target) {
  constexpr std::string_view kOps = "torch.ops.";
  if (!target.starts_with(kOps)) return std::nullopt;
  target.remove_prefix(kOps.size());
  const size_t first = target.find('.');
  const size_t last = target.rfind('.');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const std::string_view overload = target.substr(last + 1);
  return c10::OperatorName(
      fmt::format("{}::{}", target.substr(0, first), target.substr(first + 1, last - first - 1)),
      overload == "default" ? "" : std::string(overload));
}

/// A constant truth value of that name, or without names at that place.
std::optional<bool> flag(const exported::Node& node, std::string_view name, size_t position) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].name != name && !(node.inputs[i].name.empty() && i == position)) continue;
    if (const auto* value = std::get_if<bool>(&node.inputs[i].value)) return *value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<c10::OperatorHandle> find_operator(const std::string& target) {
  const auto name = operator_name(target);
  if (!name) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema(*name);
  return found ? std::optional<c10::OperatorHandle>(*found) : std::nullopt;
}

bool is(std::string_view target, std::string_view name) {
  constexpr std::string_view kAten = "torch.ops.aten.";
  return target.starts_with(kAten) && target.substr(kAten.size()).starts_with(name) &&
         target.substr(kAten.size() + name.size()).starts_with('.');
}

bool is_forbidden(std::string_view target) {
  for (const std::string_view name :
       {"from_file", "_reshape_alias", "set_", "set_data", "resize_", "resize_as_",
        "_resize_output_", "_make_dual", "_nested_view_from_buffer", "_unsafe_index",
        "_unsafe_index_put", "_unsafe_masked_index", "segment_reduce"}) {
    if (is(target, name)) return true;
  }
  // Gradients are computed here; those of a file may name places outside of their tensors.
  return target.find("_backward.") != std::string_view::npos;
}

bool is_unseeded(const exported::Node& node) {
  // The place of the argument that says whether it is training; 0: there is none.
  static constexpr std::array<std::pair<std::string_view, size_t>, 10> kOperators = {
      {{"alpha_dropout", 2},
       {"alpha_dropout_", 2},
       {"feature_alpha_dropout", 2},
       {"feature_alpha_dropout_", 2},
       {"native_dropout", 2},
       {"randint", 0},
       {"randint_like", 0},
       {"randperm", 0},
       {"rrelu", 3},
       {"rrelu_", 3}}};
  const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                  [&](const auto& one) { return is(node.target, one.first); });
  if (found == kOperators.end()) return false;
  if (found->second == 0) return true;
  const bool is_rrelu = found->first.starts_with("rrelu");
  return flag(node, is_rrelu ? "training" : "train", found->second).value_or(!is_rrelu);
}

bool lacks_derivative(std::string_view target) {
  // Of those that are not written out: operators on lists of tensors.
  return TORCH_VERSION_MAJOR < 2 && target.starts_with("torch.ops.aten._foreach_");
}

bool keeps_numbers(std::string_view target) {
  static constexpr std::array kNames = {"_to_copy", "cat",    "clone",          "constant_pad_nd",
                                        "copy",     "copy_",  "fill_",          "flip",
                                        "gather",   "index",  "index_select",   "pad",
                                        "repeat",   "roll",   "stack",          "take",
                                        "tile",     "unfold", "select_scatter", "slice_scatter",
                                        "zero_"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return is(target, name); });
}

bool draws_uniform(std::string_view target) {
  return is(target, "rand") || is(target, "rand_like");
}
bool draws_normal(std::string_view target) {
  return is(target, "randn") || is(target, "randn_like");
}

bool is_dropout(std::string_view target) {
  return is(target, "dropout") || is(target, "feature_dropout");
}

bool is_product(std::string_view target) {
  static constexpr std::array kNames = {
      "linear",           "matmul",          "mm",     "bmm",    "addmm",       "addbmm",
      "baddbmm",          "conv1d",          "conv2d", "conv3d", "convolution", "conv_transpose1d",
      "conv_transpose2d", "conv_transpose3d"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return is(target, name); });
}

bool may_hand_through(std::string_view target) {
  static constexpr std::array kNames = {
      "atleast_1d", "atleast_2d", "atleast_3d",  "broadcast_tensors", "cartesian_prod", "einsum",
      "meshgrid",   "reshape_as", "sum_to_size", "to_dense",          "type_as"};
  return is_dropout(target) || std::any_of(kNames.begin(), kNames.end(),
                                           [&](std::string_view name) { return is(target, name); });
}

bool keeps_running_statistics(std::string_view target) {
  return is(target, "batch_norm") || is(target, "instance_norm") ||
         is(target, "native_batch_norm") || is(target, "cudnn_batch_norm") ||
         is(target, "miopen_batch_norm");
}

bool is_view_only(std::string_view target) {
  static constexpr std::array kViews = {
      "alias",     "chunk",   "contiguous", "detach",           "diagonal",  "expand",
      "expand_as", "flatten", "movedim",    "narrow",           "permute",   "reshape",
      "select",    "slice",   "split",      "split_with_sizes", "squeeze",   "swapaxes",
      "t",         "to",      "transpose",  "unbind",           "unflatten", "unsqueeze",
      "view",      "view_as"};
  return std::any_of(kViews.begin(), kViews.end(),
                     [&](std::string_view name) { return is(target, name); });
}

bool is_positive(const exported::Node& node, std::string_view name, size_t position) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].name != name && !(node.inputs[i].name.empty() && i == position)) continue;
    if (const auto* number = std::get_if<double>(&node.inputs[i].value)) return *number > 0;
    if (const auto* number = std::get_if<int64_t>(&node.inputs[i].value)) return *number > 0;
  }
  return false;
}

namespace {

bool is_recurrent(std::string_view target) {
  return is(target, "lstm") || is(target, "gru") || is(target, "rnn_tanh") ||
         is(target, "rnn_relu");
}

}  // namespace

bool is_packed_recurrent(std::string_view target) {
  return is_recurrent(target) && target.ends_with(".data");
}

bool is_recurrent_with_dropout(const exported::Node& node) {
  return is_recurrent(node.target) && !is_packed_recurrent(node.target) &&
         is_positive(node, "dropout", 5);
}

}  // namespace penstock::imported
