#include "penstock/model/parts.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

namespace penstock::model {

std::vector<int64_t> TensorPart::sizes() const {
  std::vector<int64_t> result = whole;
  if (is_whole()) return result;
  int64_t& length = result[static_cast<size_t>(dimension)];
  length = 0;
  for (const Run& run : runs) length += run.length;
  return result;
}

at::Tensor TensorPart::of(const at::Tensor& tensor) const {
  if (is_whole()) return tensor;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> pieces;
  for (const Run& run : runs) pieces.push_back(tensor.narrow(dimension, run.begin, run.length));
  return at::cat(pieces, dimension);
}

void TensorPart::put_into(at::Tensor& tensor, const at::Tensor& part) const {
  const at::NoGradGuard no_grad;
  if (is_whole()) {
    tensor.copy_(part);
    return;
  }
  int64_t begin = 0;
  for (const Run& run : runs) {
    tensor.narrow(dimension, run.begin, run.length)
        .copy_(part.narrow(dimension, begin, run.length));
    begin += run.length;
  }
}

}  // namespace penstock::model
