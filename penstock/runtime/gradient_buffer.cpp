#include "penstock/runtime/gradient_buffer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "penstock/util/check.h"

namespace penstock::runtime {

namespace {

// Autograd may hand out one tensor twice (the gradient of a + b is that of both): only a tensor that nobody else holds may be written to.
bool exclusive(const at::Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.is_contiguous(); }

}  // namespace

void GradientBuffer::add(model::Tensors gradients) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(gradients.size() == sums_.size(), gradients.size(), sums_.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    if (!sums_[i].defined()) {
      // The gradient of a linear layer comes as a view that keeps its base alive; without the view's bookkeeping it is seen to be ours
      // alone.
      sums_[i] = gradients[i].variable_data();
      gradients[i].reset();
    } else if (exclusive(sums_[i])) {
      sums_[i].add_(gradients[i]);
    } else {
      sums_[i] = sums_[i] + gradients[i];
    }
  }
}

model::Tensors GradientBuffer::take() {
  model::Tensors result(sums_.size());
  std::swap(result, sums_);
  return result;
}

model::Tensors GradientBuffer::take_exclusive() {
  const at::NoGradGuard no_grad;
  model::Tensors result = take();
  for (at::Tensor& tensor : result) {
    if (tensor.defined() && !exclusive(tensor)) tensor = tensor.clone(at::MemoryFormat::Contiguous);
  }
  return result;
}

}  // namespace penstock::runtime
