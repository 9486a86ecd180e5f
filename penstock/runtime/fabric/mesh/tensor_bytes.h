// Tensors as the bytes that travel. Internal to fabric/mesh.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

/// The memory of a contiguous tensor on the CPU; nothing for an undefined one.
net::Memory memory_of(const at::Tensor& tensor);
/// The same to be sent: also an empty tensor is a part, with 0 bytes; an undefined one is left out.
net::Bytes bytes_of(const at::Tensor& tensor);

/// Of defined tensors together.
int64_t bytes_of_all(const model::Tensors& tensors);

/// Tensors on their way out: contiguous, and held until they are sent.
class OutgoingTensors {
 public:
  explicit OutgoingTensors(model::Tensors tensors);

  std::vector<net::Bytes> parts() const;
  std::shared_ptr<const void> keep() const { return tensors_; }

 private:
  std::shared_ptr<model::Tensors> tensors_;
};

WaitResult result_of(net::Transfer::Result result);

}  // namespace penstock::runtime
