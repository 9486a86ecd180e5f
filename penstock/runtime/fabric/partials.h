// The gradients of one mini-batch on one replica of a stage, before they are summed over the
// replicas (gradient_buffer.h says how micro-batches are grouped).
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock::runtime {

/// Sum over the micro-batches of one group.
struct GroupGradients {
  int64_t group = 0;
  model::Tensors sums;  ///< undefined where nothing was added
};
/// Ascending by group.
using Partials = std::vector<GroupGradients>;

}  // namespace penstock::runtime
