#include "penstock/runtime/fabric/mesh/mesh_gather.h"

#include <ATen/core/grad_mode.h>

#include <memory>
#include <utility>

#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/weight_shares.h"

namespace penstock::runtime {

namespace {

StageSumSetup in_float32(StageSumSetup setup) {
  setup.precision = FloatType::Float32;
  setup.own_shards_only = false;
  return setup;
}

}  // namespace

MeshGather::MeshGather(StageSumSetup setup)
    : StageSum(in_float32(setup), even_shares(static_cast<int>(setup.rank_of_replica.size()), 0)) {
  MutexLock lock(mutex_);
  rounds_.resize(setup.rank_of_replica.size(), std::vector<uint64_t>(setup.bucket_ends.size()));
}

void MeshGather::post(int replica, size_t bucket) {
  const auto round = results_.begin(replica, bucket, model::Tensors(weights_of(bucket)));
  if (!round) return;
  {
    MutexLock lock(mutex_);
    rounds_[static_cast<size_t>(replica)][bucket] = *round;
  }
  for (const size_t s : results_.shards_of(bucket)) {
    const auto owner = static_cast<int>(shards_[s].owner);
    if (setup_.is_here(owner)) continue;
    auto parts = std::make_shared<model::Tensors>();
    const auto transfer = setup_.mesh.receive(rank_of(owner), tag(Results, replica, s, *round),
                                              results_.place(replica, s, parts));
    when_received(*transfer, [this, replica, s, parts] { results_.put(replica, s, *parts); });
  }
}

void MeshGather::start(int replica, size_t bucket, Partials partials) {
  const at::NoGradGuard no_grad;
  const model::Tensors weights = std::move(partials.front().sums);
  uint64_t round = 0;
  {
    MutexLock lock(mutex_);
    round = rounds_[static_cast<size_t>(replica)][bucket];
  }
  results_.aim(replica, bucket, weights);
  for (const size_t s : results_.shards_of(bucket)) {
    if (shards_[s].owner != static_cast<size_t>(replica)) continue;
    const model::Tensors own = results_.slices(s, weights);
    results_.put(replica, s, {});
    // Each owner begins with the replica behind it: nobody is sent everything at once.
    for (int i = 1; i < replicas(); ++i) {
      const int other = (replica + i) % replicas();
      if (setup_.is_here(other))
        results_.put(other, s, own);
      else
        send_later(Results, rank_of(other), tag(Results, other, s, round), own);
    }
  }
}

}  // namespace penstock::runtime
