// The gradients of the values of one micro-batch in one stage, on their way from the layers that
// read a value to the layer that made it. Every sum has the canonical order (gradient_order.h), for
// any order of arrival.
#pragma once

#include <vector>

#include "penstock/runtime/ordered_sum.h"
#include "penstock/runtime/stage_module.h"

namespace penstock::runtime {

/// Not thread-safe.
class ValueGradients {
 public:
  explicit ValueGradients(const StageModule& module);

  /// Adds the part of a layer of this stage, or of the loss, to a value's gradient; undefined:
  /// nothing.
  void add(const GradientPlace& place, at::Tensor part);
  /// Adds what message() made in stage `from`, which reads our outputs.
  void receive(StageId from, Tensors parts);
  /// The gradient of a value that is made here.
  at::Tensor take(size_t slot) { return sums_[slot - num_inputs_].take(); }
  /// The parts of the gradients of stage `to`'s outputs: per value, in the order of
  /// inputs_from(to), the parts that `to` needs separately.
  Tensors message(StageId to);

 private:
  const StageModule* module_;
  size_t num_inputs_;
  std::vector<OrderedSum> sums_;                ///< per value made here
  std::vector<std::vector<OrderedSum>> parts_;  ///< per value of inputs(): what will be sent
};

}  // namespace penstock::runtime
