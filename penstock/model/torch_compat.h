#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

/// \file
/// Where libtorch 1.13 and libtorch 2 differ: all of it is here.
namespace penstock::model {

/// Owns a node of the autograd graph: a shared pointer in libtorch 1.13, an intrusive one in 2.13.
using NodePointer = decltype(torch::autograd::Edge::function);

/// A new node of a class of ours, for create_gradient_edge().
template <typename T>
NodePointer make_node() {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<T>();
  else
    return c10::make_intrusive<T>();
}

/// Elements of lists of tensors that may be missing: c10::optional in libtorch 1.13.
using OptionalTensor = decltype(std::declval<c10::IValue>().toOptional<at::Tensor>());

/// Of the totals in c10::MemoryReportingInfoBase, which are not used here.
using TotalBytes = std::conditional_t<(TORCH_VERSION_MAJOR >= 2), size_t, int64_t>;

}  // namespace penstock::model
