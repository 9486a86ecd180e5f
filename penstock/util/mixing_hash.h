// A hash for tables whose keys others choose. std::hash leaves an integer as it is, and a table
// takes it modulo its number of buckets: keys that are multiples of that number, which is no
// secret, all land in one bucket, and each look-up walks over all of them.
//
//   std::unordered_map<uint64_t, size_t, MixingHash> table;
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/util/rng.h"

namespace penstock {

/// Scatters keys with any pattern (SplitMix64). It is no defence against keys computed to meet
/// under this very mix.
struct MixingHash {
  size_t operator()(uint64_t key) const { return static_cast<size_t>(mix_seed(key)); }
};

}  // namespace penstock
