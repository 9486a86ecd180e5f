// Sums of gradients whose order does not depend on the order of arrival: floating-point addition is
// not associative, and results must not depend on how the model is cut, on the schedule or on
// timing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>

namespace penstock::runtime {

/// Whether nobody else can see the tensor's memory, so that one may write to it. Autograd may
/// return one tensor twice (the gradient of a + b is that of a and of b).
bool is_exclusive(const at::Tensor& tensor);

/// sum += part, in place where the sum is exclusive; an undefined part adds nothing, an undefined
/// sum becomes the part itself.
void add_gradient(at::Tensor& sum, at::Tensor part);

/// Parts 0, 1, ... count - 1, summed from the left in that order, for any order of arrival. A part
/// that comes early waits. Not thread-safe.
class OrderedSum {
 public:
  explicit OrderedSum(size_t count = 0) : count_(count) {}

  /// Each position once.
  void put(size_t position, at::Tensor part);
  bool complete() const { return next_ == count_; }
  /// The sum, undefined if all parts are. Must be complete.
  at::Tensor take();

 private:
  size_t count_;
  size_t next_ = 0;
  at::Tensor sum_;
  std::map<size_t, at::Tensor> early_;
};

}  // namespace penstock::runtime
