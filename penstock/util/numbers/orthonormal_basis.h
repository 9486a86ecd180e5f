// A fixed basis of a subspace: the same numbers for the same sizes on every machine.
//
//   const std::vector<float> basis = orthonormal_basis(512, 160);   // [512, 160], row by row
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

/// `rank` columns of `width` numbers each, of length 1 and at right angles to each other up to
/// float32's rounding, otherwise drawn from all directions alike; 1 <= rank <= width. Pure. O(width
/// rank^2).
std::vector<float> orthonormal_basis(int64_t width, int64_t rank);

}  // namespace penstock
