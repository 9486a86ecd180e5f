#include "penstock/model/device/testing_other_device.h"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <ATen/detail/PrivateUse1HooksInterface.h>
#endif

#include <chrono>
#include <utility>
#include <vector>

#include "penstock/model/torch_compat.h"

namespace penstock::model {

namespace {

using torch::jit::Stack;

template <typename T>
using Optional = decltype(std::declval<c10::IValue>().toOptional<T>());

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

struct OneDevice final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kType, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  // Between threads of autograd. Work is done at once.
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
};

#if TORCH_VERSION_MAJOR >= 2
/// libtorch 2 asks for these before autograd runs on a device.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

void register_hooks() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("other");
}
#else
void register_hooks() {}
#endif

/// The same memory, said to be on that device.
c10::Storage memory_on(c10::Device device, const c10::Storage& storage) {
  auto* kept = new c10::Storage(storage);
  c10::DataPtr memory(
      storage.data_ptr().get(), kept, [](void* owner) { delete static_cast<c10::Storage*>(owner); },
      device);
  return {c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(memory),
          c10::GetAllocator(c10::kCPU), /*resizable=*/true};
}

/// The same numbers, said to be on that device: writing to one changes the other.
at::Tensor same_on(c10::Device device, const at::Tensor& tensor) {
  const c10::DispatchKey key =
      device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  at::Tensor same = at::detail::make_tensor<c10::TensorImpl>(
      memory_on(device, tensor.storage()), c10::DispatchKeySet(key), tensor.dtype());
  same.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  return same;
}

/// `view` as a view of that storage of the device.
at::Tensor view_of(const c10::Storage& storage, const at::Tensor& view) {
  at::Tensor same = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), view.dtype());
  same.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(),
                                                    view.storage_offset());
  return same;
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType ? same_on(c10::kCPU, tensor) : tensor;
}

at::Tensor on_other(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() ? same_on({kType, 0}, tensor) : tensor;
}

/// Numbers that the host knows may go with tensors of any device.
void refuse_mixing(const c10::OperatorHandle& op, const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.defined() || !tensor.is_cpu() || tensor.dim() == 0, "an argument of ",
              op.schema().name(), " is on the CPU");
}

/// Arguments that the operator wrote to may have another size now.
void take_over(const at::Tensor& written, const at::Tensor& tensor) {
  if (written.sizes() == tensor.sizes() && written.strides() == tensor.strides() &&
      written.data_ptr() == tensor.data_ptr())
    return;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(memory_on({kType, 0}, written.storage()));
  impl->set_sizes_and_strides(written.sizes(), written.strides(), written.storage_offset());
}

template <class Call>
void computed_on_cpu(const c10::OperatorHandle& op, Stack* stack, const Call& call) {
  const size_t count = op.schema().arguments().size();
  std::vector<std::pair<at::Tensor, at::Tensor>> swapped;
  const auto taken = [&](const at::Tensor& tensor) {
    refuse_mixing(op, tensor);
    at::Tensor same = on_cpu(tensor);
    if (!same.is_same(tensor)) swapped.emplace_back(same, tensor);
    return same;
  };
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    c10::IValue& argument = (*stack)[i];
    if (argument.isTensor()) {
      argument = taken(argument.toTensor());
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : argument.toTensorVector()) list.push_back(taken(tensor));
      argument = std::move(list);
    } else if (argument.isOptionalTensorList()) {
      c10::List<OptionalTensor> list;
      for (const OptionalTensor& tensor : argument.toOptionalTensorVector())
        list.push_back(tensor ? OptionalTensor(taken(*tensor)) : tensor);
      argument = std::move(list);
    } else if (argument.isDevice() && argument.toDevice().type() == kType) {
      argument = c10::Device(c10::kCPU);
    }
  }
  call();
  const auto given_back = [&](const at::Tensor& result) {
    for (const auto& [same, tensor] : swapped) {
      if (same.is_same(result)) return tensor;
    }
    for (const auto& [same, tensor] : swapped) {
      const bool is_view =
          result.defined() && same.defined() && result.is_cpu() &&
          result.storage().unsafeGetStorageImpl() == same.storage().unsafeGetStorageImpl();
      if (is_view) return view_of(tensor.storage(), result);
    }
    return on_other(result);
  };
  for (const auto& [same, tensor] : swapped) take_over(same, tensor);
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    c10::IValue& result = (*stack)[i];
    if (result.isTensor()) {
      result = given_back(result.toTensor());
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(given_back(tensor));
      result = std::move(list);
    }
  }
}

void by_cpu(const c10::OperatorHandle& op, Stack* stack) {
  computed_on_cpu(op, stack, [&] { op.callBoxed(stack); });
}

c10::OperatorHandle operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

/// libtorch hands convolutions of devices that it does not know to operators of their own.
void convolution(const c10::OperatorHandle& op, Stack* stack) {
  computed_on_cpu(op, stack, [&] { operator_named("aten::convolution").callBoxed(stack); });
}

void convolution_backward(const c10::OperatorHandle& op, Stack* stack) {
  computed_on_cpu(op, stack, [&] {
    // Gradient, input and weight; then what the other operator lacks: the sizes of the bias.
    const auto first = stack->end() - static_cast<int64_t>(op.schema().arguments().size());
    const int64_t channels = first->toTensor().size(1);
    stack->insert(first + 3, c10::IValue(std::vector<int64_t>{channels}));
    operator_named("aten::convolution_backward").callBoxed(stack);
  });
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

at::Tensor empty(c10::IntArrayRef sizes, Optional<c10::ScalarType> type, Optional<c10::Layout>,
                 Optional<c10::Device>, Optional<bool>, Optional<c10::MemoryFormat> format) {
  at::TensorOptions options;
  if (type) options = options.dtype(*type);
  return on_other(format ? at::empty(sizes, options, *format) : at::empty(sizes, options));
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         Optional<c10::ScalarType> type, Optional<c10::Layout>,
                         Optional<c10::Device>, Optional<bool>) {
  at::TensorOptions options;
  if (type) options = options.dtype(*type);
  return on_other(at::empty_strided(sizes, strides, options));
}

bool register_device() {
  static const OneDevice guard;
  static const c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
  register_hooks();
  static torch::Library all(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__,
                            __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&by_cpu>());
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                             __LINE__);
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("_copy_from", &copy_from);
  aten.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  aten.impl("convolution_backward_overrideable",
            torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  return true;
}

// Before main(): autograd counts devices once.
[[maybe_unused]] const bool registered = register_device();

class DoneEvent final : public DeviceEvent {
 public:
  bool is_done() const override { return true; }
  void wait_on_host() const override {}
  int64_t ns_since(const DeviceEvent& earlier) const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               at_ - dynamic_cast<const DoneEvent&>(earlier).at_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

class OtherStream final : public DeviceStream {
 public:
  explicit OtherStream(at::Device device) : device_(device) {}

  at::Device device() const override { return device_; }
  at::Device memory() const override { return other_device(); }
  std::unique_ptr<StreamScope> enter() override { return std::make_unique<StreamScope>(); }
  EventPtr record(bool) override { return std::make_shared<DoneEvent>(); }
  void wait(const EventPtr&) override {}
  void uses(const at::Tensor&) override {}
  at::Tensor allocate_like(const at::Tensor& tensor, bool) override {
    return at::empty_like(tensor, tensor.options().device(memory()));
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    const at::NoGradGuard no_grad;
    to.copy_(from);
  }
  void synchronize() override {}

 private:
  at::Device device_;
};

}  // namespace

std::shared_ptr<DeviceStream> OtherDevices::stream(at::Device device) {
  if (device.is_cpu()) return host_stream();
  return std::make_shared<OtherStream>(device);
}

at::Device other_device() { return {kType, 0}; }

}  // namespace penstock::model
