// What one rank has to know of the sum of a stage's gradients. Internal to fabric/mesh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/gradient_shards.h"
#include "penstock/runtime/fabric/mesh/send_window.h"
#include "penstock/runtime/fabric/mesh/sum_service.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::runtime {

/// All but the services is the same on every rank.
struct StageSumSetup {
  net::Mesh& mesh;
  std::shared_ptr<SumService> service;
  std::shared_ptr<SendWindow> window;
  uint32_t run = 0;
  uint32_t first_channel = 0;
  std::vector<int> rank_of_replica;
  std::vector<int> rank_of_server;           ///< those that add gradients only
  std::vector<model::Shape> shapes;          ///< of the weights
  std::vector<size_t> bucket_ends;           ///< gradient_shards.h
  int64_t most_numbers = kShardNumbers;      ///< of a shard
  FloatType precision = FloatType::Float32;  ///< in which gradients travel
  /// Owner r is replica r, and a result goes to its owner alone.
  bool own_shards_only = false;

  bool is_here(int replica) const {
    return rank_of_replica[static_cast<size_t>(replica)] == mesh.rank();
  }
};

}  // namespace penstock::runtime
