#include "penstock/model/device/layout.h"

namespace penstock::model {

bool lays_channels_last(const Model& model, Precision precision, at::Device device) {
  return model.takes_channels_last() && precision != Precision::Float32 && device.is_cuda();
}

at::Tensor channels_last(at::Tensor tensor) {
  if (!tensor.defined() || tensor.dim() != 4 || !tensor.is_floating_point()) return tensor;
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor in_order(at::Tensor gradient) {
  if (!gradient.defined() || gradient.dim() != 4 || !gradient.is_cuda()) return gradient;
  return gradient.contiguous();
}

}  // namespace penstock::model
