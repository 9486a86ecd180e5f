#include "penstock/runtime/fabric/weight_shares.h"

#include <c10/util/accumulate.h>

#include "penstock/runtime/fabric/gradient_shards.h"

namespace penstock::runtime {

std::vector<int64_t> numbers_of(const std::vector<model::Shape>& shapes) {
  std::vector<int64_t> numbers;
  for (const model::Shape& shape : shapes) numbers.push_back(c10::multiply_integers(shape));
  return numbers;
}

std::vector<double> even_shares(int replicas, int servers) {
  std::vector<double> shares(static_cast<size_t>(replicas), 1.0);
  shares.resize(shares.size() + static_cast<size_t>(servers), 0.0);
  return shares;
}

std::vector<WeightShare> weight_shares(const std::vector<model::Shape>& shapes,
                                       const std::vector<size_t>& layer_ends, int replicas) {
  const std::vector<int64_t> numbers = numbers_of(shapes);
  const std::vector<Shard> shards =
      make_shards(numbers, make_buckets(numbers, layer_ends), even_shares(replicas, 0));
  std::vector<WeightShare> shares(static_cast<size_t>(replicas), WeightShare(shapes.size()));
  for (const Shard& shard : shards) {
    for (const ShardRange& range : shard.ranges) {
      // The shards of an owner within a bucket follow each other without gaps.
      WeightRange& share = shares[shard.owner][range.weight];
      if (share.length == 0 || range.begin < share.begin) share.begin = range.begin;
      share.length += range.length;
    }
  }
  return shares;
}

}  // namespace penstock::runtime
