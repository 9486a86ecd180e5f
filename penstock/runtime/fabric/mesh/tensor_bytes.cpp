#include "penstock/runtime/fabric/mesh/tensor_bytes.h"

namespace penstock::runtime {

net::Memory memory_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

net::Bytes bytes_of(const at::Tensor& tensor) {
  static constexpr std::byte kNothing{};
  if (!tensor.defined()) return {};
  if (tensor.numel() == 0) return {&kNothing, 0};
  return memory_of(tensor);
}

int64_t bytes_of_all(const model::Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

OutgoingTensors::OutgoingTensors(model::Tensors tensors)
    : tensors_(std::make_shared<model::Tensors>(std::move(tensors))) {
  for (at::Tensor& tensor : *tensors_) {
    if (tensor.defined()) tensor = tensor.contiguous();
  }
}

std::vector<net::Bytes> OutgoingTensors::parts() const {
  std::vector<net::Bytes> parts;
  for (const at::Tensor& tensor : *tensors_) parts.push_back(bytes_of(tensor));
  return parts;
}

WaitResult result_of(net::Transfer::Result result) {
  switch (result) {
    case net::Transfer::Result::Done:
      return WaitResult::Ready;
    case net::Transfer::Result::TimedOut:
      return WaitResult::TimedOut;
    case net::Transfer::Result::Closed:
      break;
  }
  return WaitResult::Closed;
}

}  // namespace penstock::runtime
