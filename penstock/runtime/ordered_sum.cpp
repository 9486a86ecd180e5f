#include "penstock/runtime/ordered_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

bool is_exclusive(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.is_contiguous();
}

void add_gradient(at::Tensor& sum, at::Tensor part) {
  if (!part.defined()) return;
  const at::NoGradGuard no_grad;
  if (!sum.defined()) {
    // The gradient of a linear layer is a view that keeps its base alive; without the view's
    // metadata one can see that the memory is exclusive.
    sum = part.variable_data();
  } else if (is_exclusive(sum)) {
    sum.add_(part);
  } else {
    sum = sum + part;
  }
}

void OrderedSum::put(size_t position, at::Tensor part) {
  PENSTOCK_CHECK(position >= next_ && position < count_ && !early_.contains(position), position,
                 next_, count_);
  if (position != next_) {
    early_.emplace(position, std::move(part));
    return;
  }
  add_gradient(sum_, std::move(part));
  ++next_;
  while (!early_.empty() && early_.begin()->first == next_) {
    add_gradient(sum_, std::move(early_.begin()->second));
    early_.erase(early_.begin());
    ++next_;
  }
}

at::Tensor OrderedSum::take() {
  PENSTOCK_CHECK(complete(), "a gradient is taken before all its parts have arrived:", next_, "of",
                 count_);
  return std::move(sum_);
}

}  // namespace penstock::runtime
