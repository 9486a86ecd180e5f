// What crosses the members of a team inside a layer, with gradients. Each is the other's gradient
// (Korthikanti et al. 2022, section 4): sum_forward and sum_backward, gather and part, gather_sum
// and sum_part.
//
//   at::Tensor y = sum_forward(at::linear(part_of_x, part_of_weight), team);
//
// `equal`: every member has the same numbers, and gets the same gradient. `partial`: the numbers
// are the sum of those of all members. `part`: each has its own along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "penstock/model/team.h"

namespace penstock::model {

/// Along which dimension members have parts, and how long each member's is. Without lengths: all
/// have as much, of whatever whole length there is, such as the places of a sequence. A whole
/// length that does not divide is then refused with a ConfigError, on every member.
struct Division {
  int64_t dimension = 0;
  std::vector<int64_t> lengths = {};
};

/// From partial to equal. Backward: the gradient as it is.
at::Tensor sum_forward(const at::Tensor& x, Team& team);
/// From equal to equal that each member uses for a part of the work. Backward: the sum of all
/// members' gradients.
at::Tensor sum_backward(const at::Tensor& x, Team& team);
/// From part to equal. Backward: the member's part of the gradient.
at::Tensor gather(const at::Tensor& x, Team& team, const Division& division);
/// From equal to part. Backward: the members' gradients, side by side.
at::Tensor part(const at::Tensor& x, Team& team, const Division& division);
/// From part to equal that each member uses for a part of the work. Backward: the member's part of
/// the sum of all members' gradients.
at::Tensor gather_sum(const at::Tensor& x, Team& team, const Division& division);
/// From partial to part: of the sum. Backward: the members' gradients, side by side.
at::Tensor sum_part(const at::Tensor& x, Team& team, const Division& division);
/// A part of which the members from `first` on, `count` of them, have copies. Backward: the sum of
/// their gradients, in their order. This member is one of them; all members of the team call it,
/// with their own groups.
at::Tensor sum_copies(const at::Tensor& x, Team& team, int64_t first, int64_t count);

}  // namespace penstock::model
