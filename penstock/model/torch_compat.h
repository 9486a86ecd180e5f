#pragma once

#include <torch/version.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#if TORCH_VERSION_MAJOR >= 2
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

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

/// What an allocator overrides: take().
class AllocatorBase : public c10::Allocator {
 public:
  /// As c10::Allocator::allocate().
  virtual c10::DataPtr take(size_t bytes) const = 0;
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) final { return take(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const final {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const final { return take(bytes); }
#endif
};

/// Of the totals in c10::MemoryReportingInfoBase, which are not used here.
using TotalBytes = std::conditional_t<(TORCH_VERSION_MAJOR >= 2), size_t, int64_t>;

/// to[i].copy_(from[i]); in few operations where libtorch has one for lists.
inline void copy_together(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
#if TORCH_VERSION_MAJOR >= 2
  at::_foreach_copy_(to, from);
#else
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
#endif
}

/// One operation for SGD's step of all weights, in place; false where libtorch has none, or not for
/// these tensors (it has for GPUs).
#if TORCH_VERSION_MAJOR >= 2
inline bool step_sgd_together(const std::vector<at::Tensor>& weights,
                              const std::vector<at::Tensor>& gradients,
                              const std::vector<at::Tensor>& momentum, double learning_rate,
                              double factor, double decay, bool nesterov) {
  if (!weights.front().is_cuda()) return false;
  at::_fused_sgd_(weights, gradients, momentum, decay, factor, learning_rate, /*dampening=*/0,
                  nesterov, /*maximize=*/false, /*is_first_step=*/false);
  return true;
}
#else
template <typename... Arguments>
bool step_sgd_together(const Arguments&...) {
  return false;
}
#endif

/// Attention in one operation.
#if TORCH_VERSION_MAJOR >= 2
inline constexpr bool kHasFusedAttention = true;
/// Each [batch, heads, time, size]; a query sees the keys up to its own place.
inline at::Tensor fused_causal_attention(const at::Tensor& query, const at::Tensor& key,
                                         const at::Tensor& value) {
  return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0,
                                          /*is_causal=*/true);
}
#else
inline constexpr bool kHasFusedAttention = false;
template <typename... Arguments>
at::Tensor fused_causal_attention(const Arguments&...) {
  return {};
}
#endif

/// While it lives, this thread's operations on CPUs, or on GPUs, have the types that torch.autocast
/// gives them there: products in `type`, norms and the like in float32. Casts are not kept between
/// operations, as weights change in between.
class Autocast {
 public:
  Autocast(bool on_gpu, at::ScalarType type)
      : on_gpu_(on_gpu), was_on_(is_on()), type_before_(type_now()) {
    set(true, type);
  }
  ~Autocast() {
    set(was_on_, type_before_);
    at::autocast::set_autocast_cache_enabled(cached_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
#if TORCH_VERSION_MAJOR >= 2
  at::DeviceType kind() const { return on_gpu_ ? at::kCUDA : at::kCPU; }
  bool is_on() const { return at::autocast::is_autocast_enabled(kind()); }
  at::ScalarType type_now() const { return at::autocast::get_autocast_dtype(kind()); }
  void set(bool on, at::ScalarType type) const {
    at::autocast::set_autocast_cache_enabled(false);
    at::autocast::set_autocast_dtype(kind(), type);
    at::autocast::set_autocast_enabled(kind(), on);
  }
#else
  bool is_on() const {
    return on_gpu_ ? at::autocast::is_enabled() : at::autocast::is_cpu_enabled();
  }
  at::ScalarType type_now() const {
    return on_gpu_ ? at::autocast::get_autocast_gpu_dtype()
                   : at::autocast::get_autocast_cpu_dtype();
  }
  void set(bool on, at::ScalarType type) const {
    at::autocast::set_autocast_cache_enabled(false);
    if (on_gpu_) {
      at::autocast::set_autocast_gpu_dtype(type);
      at::autocast::set_enabled(on);
    } else {
      at::autocast::set_autocast_cpu_dtype(type);
      at::autocast::set_cpu_enabled(on);
    }
  }
#endif

  bool on_gpu_;
  bool cached_ = at::autocast::is_autocast_cache_enabled();
  bool was_on_;
  at::ScalarType type_before_;
};

/// Whether this thread's products on CPUs are computed in 16 bits.
inline bool cpu_autocasts() {
#if TORCH_VERSION_MAJOR >= 2
  return at::autocast::is_autocast_enabled(at::kCPU);
#else
  return at::autocast::is_cpu_enabled();
#endif
}

/// In which this thread's products on GPUs are computed; nothing: in the type of what is
/// multiplied.
inline std::optional<at::ScalarType> gpu_autocast_type() {
#if TORCH_VERSION_MAJOR >= 2
  if (at::autocast::is_autocast_enabled(at::kCUDA))
    return at::autocast::get_autocast_dtype(at::kCUDA);
#else
  if (at::autocast::is_enabled()) return at::autocast::get_autocast_gpu_dtype();
#endif
  return std::nullopt;
}

}  // namespace penstock::model
