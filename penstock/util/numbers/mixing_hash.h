// A hash for tables whose keys come from input. std::hash returns an integer unchanged, and a table
// takes it modulo its number of buckets. Anybody can know that number: keys that are multiples of
// it all fall into one bucket, and each look-up walks over all of them.
//
//   std::unordered_map<uint64_t, size_t, MixingHash> table;
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/util/numbers/rng.h"

namespace penstock {

/// Distributes keys with any pattern (SplitMix64). It does not protect against keys that were
/// computed to collide under this hash.
struct MixingHash {
  size_t operator()(uint64_t key) const { return static_cast<size_t>(mix_seed(key)); }
};

}  // namespace penstock
