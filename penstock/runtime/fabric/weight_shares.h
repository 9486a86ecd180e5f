// Which part of a stage's weights each of its replicas steps where they share out the optimiser's
// state (ZeRO stage 1: Rajbhandari et al., SC 2020, section 5.1): about the same number of weights
// for each, cut as the sums between ranks are (gradient_shards.h), so that a replica adds up
// just the gradients that it needs.
//
//   std::vector<WeightShare> shares = weight_shares(shapes, layer_ends, 2);
//   shares[0][w].length                               // numbers of weight w that replica 0 steps
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock::runtime {

/// Numbers [begin, begin + length) of a weight, flat.
struct WeightRange {
  int64_t begin = 0;
  int64_t length = 0;
  bool operator==(const WeightRange&) const = default;
};
/// By weight of the stage.
using WeightShare = std::vector<WeightRange>;

/// How many numbers each weight has.
std::vector<int64_t> numbers_of(const std::vector<model::Shape>& shapes);

/// Per replica. Every number of every weight is in exactly one of them. `shapes` and `layer_ends`:
/// as StageWeights has them. Pure.
std::vector<WeightShare> weight_shares(const std::vector<model::Shape>& shapes,
                                       const std::vector<size_t>& layer_ends, int replicas);

/// How the sums between ranks must be cut (make_shards) to agree with weight_shares().
std::vector<double> even_shares(int replicas, int servers);

}  // namespace penstock::runtime
