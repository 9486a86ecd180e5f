// Moves messages by libtorch's process groups (c10d), one per lane. What they compute with is not
// used: sums are Penstock's own, in a fixed order.
//
//   mesh.carry_by(make_c10d_carrier({activations, gradients}), smallest);
//
// Both sides name pieces in the same order and by a number, which Gloo uses.
// Gloo cannot be asked whether a piece is there: per lane and direction a thread waits for the
// oldest one. The threads sleep when nothing is under way. Internal to runtime.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <vector>

#include "penstock/net/carrier.h"

namespace penstock::runtime {

/// As many groups as a carrier has lanes, of all ranks. Their operations must accept tensors of
/// bytes on the CPU.
std::unique_ptr<net::Carrier> make_c10d_carrier(
    std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups);

}  // namespace penstock::runtime
