// What layers cost, one by one and added up: what splits are made of, before any stage is known.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/util/ids.h"

namespace penstock::planner {

/// What the planner needs of one layer, for a device of speed 1.
struct PlannedLayer {
  int64_t forward_ns = 0;
  int64_t compute_ns = 0;  ///< forward and backward
  int64_t step_ns = 0;
  int64_t weight_bytes = 0;
  int64_t stash_bytes = 0;
  std::vector<int64_t> output_bytes;
  /// The part of the backward pass that makes the weights' gradients.
  int64_t backward_weight_ns = 0;
  /// Adding the weights' gradients of a micro-batch to those before it in the same step.
  int64_t accumulate_ns = 0;
  int64_t short_weight_bytes = 0;  ///< profile::LayerCost
  int64_t constant_bytes = 0;      ///< profile::LayerCost
  int64_t working_bytes = 0;       ///< profile::LayerCost
  /// Per input (profile::counting_layers); empty: not known.
  std::vector<std::optional<LayerId>> counted_by = {};
};

/// Sums over a set of layers.
struct LayerSums {
  int64_t forward_ns = 0;
  int64_t compute_ns = 0;
  int64_t step_ns = 0;
  int64_t weight_bytes = 0;
  int64_t stash_bytes = 0;
  int64_t accumulate_ns = 0;
  int64_t constant_bytes = 0;

  void add(const PlannedLayer& layer, int sign = 1) {
    forward_ns += sign * layer.forward_ns;
    compute_ns += sign * layer.compute_ns;
    step_ns += sign * layer.step_ns;
    weight_bytes += sign * layer.weight_bytes;
    stash_bytes += sign * layer.stash_bytes;
    accumulate_ns += sign * layer.accumulate_ns;
    constant_bytes += sign * layer.constant_bytes;
  }
};

}  // namespace penstock::planner
