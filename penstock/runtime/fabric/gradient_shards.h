// How the gradients of a stage are cut for a sum over ranks. Weights are grouped into buckets,
// whose gradients leave together; a bucket is cut into shards; each shard has an owner, who adds it
// up.
//
// Buckets: whole layers, in their order, of at least `kBucketNumbers` numbers unless they are the
// last ones. Each bucket is shared out over the owners in proportion to their shares, so that all
// NICs are busy from the first bucket on; a bucket too small for that belongs as a whole to the
// owner that has least for its share. Shards are small enough that adding one overlaps with moving
// the next: 512 KiB (4 MB in BytePS, OSDI 2020, section 4.2), 128 KiB where servers add. A server
// sends nothing before it has the first shard of all replicas; at the end it still has to send its
// last shard to all of them, and receives nothing. Pure functions of the sizes: every rank finds
// the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/plan/gradient_sync.h"

namespace penstock::runtime {

/// float32; planner and simulator count the same buckets.
inline constexpr int64_t kBucketNumbers = plan::kBucketBytes / 4;
inline constexpr int64_t kShardNumbers = int64_t{128} << 10;
inline constexpr int64_t kServerShardNumbers = int64_t{32} << 10;
/// Of each owner's part of a bucket that is shared out.
inline constexpr int64_t kLeastPart = 256;

/// Numbers [begin, begin + length) of a weight, flat.
struct ShardRange {
  size_t weight = 0;
  int64_t begin = 0;
  int64_t length = 0;
  bool operator==(const ShardRange&) const = default;
};

struct Shard {
  size_t bucket = 0;
  size_t owner = 0;
  std::vector<ShardRange> ranges;  ///< ascending, none empty
};

/// The weight behind the last one of each bucket. `numbers`: per weight, how many; `layer_ends`:
/// the weight behind the last one of each layer, ascending, the last one being the number of
/// weights.
std::vector<size_t> make_buckets(const std::vector<int64_t>& numbers,
                                 const std::vector<size_t>& layer_ends);

/// The shards, bucket by bucket; within a bucket so that at every place each owner has had about
/// its share. `shares`: per owner, at least one of them positive. No shard has more than
/// `most_numbers`. Weights without numbers are in no shard.
std::vector<Shard> make_shards(const std::vector<int64_t>& numbers,
                               const std::vector<size_t>& bucket_ends,
                               const std::vector<double>& shares,
                               int64_t most_numbers = kShardNumbers);

}  // namespace penstock::runtime
