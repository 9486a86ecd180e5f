#include "penstock/runtime/fabric/mesh/ring_sum.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "penstock/runtime/fabric/mesh/wire_numbers.h"

namespace penstock::runtime {

RingSum::RingSum(StageSumSetup setup)
    : StageSum(setup, std::vector<double>(setup.rank_of_replica.size(), 1.0)) {
  links_.resize(static_cast<size_t>(replicas()));
  for (auto& links : links_) links.resize(shards_.size());
}

void RingSum::begin() {
  for (int replica = 0; replica < replicas(); ++replica) {
    for (size_t s = 0; setup_.is_here(replica) && s < shards_.size(); ++s) post_sum(replica, s, 0);
  }
}

void RingSum::post_sum(int replica, size_t shard, uint64_t round) {
  if (is_first(replica, shard) || setup_.is_here(before(replica))) return;
  auto parts = std::make_shared<model::Tensors>();
  const std::vector<ShardRange>& ranges = shards_[shard].ranges;
  const auto transfer = setup_.mesh.receive(
      rank_of(before(replica)), tag(Adding, replica, shard, round),
      place_of_sums(ranges, model::Tensors(ranges.size()), parts, setup_.precision));
  when_received(*transfer,
                [this, replica, shard, parts] { take(replica, shard, &Link::sum, *parts); });
}

void RingSum::post_result(int replica, size_t shard, uint64_t round) {
  if (replica == owner(shard) || setup_.is_here(before(replica))) return;
  auto parts = std::make_shared<model::Tensors>();
  const auto transfer =
      setup_.mesh.receive(rank_of(before(replica)), tag(Results, replica, shard, round),
                          results_.place(replica, shard, parts));
  when_received(*transfer, [this, replica, shard, round, parts] {
    take_result(replica, shard, round, *parts);
  });
}

void RingSum::send(Phase phase, int to, size_t shard, uint64_t round, const model::Tensors& parts) {
  send_later(phase, rank_of(to), tag(phase, to, shard, round), parts);
}

void RingSum::start(int replica, size_t bucket, Partials partials) {
  const at::NoGradGuard no_grad;
  const size_t count = weights_of(bucket);
  const model::Tensors own = first_gradients(partials, count);
  for (size_t i = 0; i < count; ++i) {
    for (const GroupGradients& group : partials) {
      const at::Tensor& part = group.sums[i];
      if (part.defined() && !part.is_same(own[i])) own[i].add_(part);
    }
  }
  const auto round = results_.begin(replica, bucket, own);
  if (!round) return;
  for (const size_t s : results_.shards_of(bucket)) post_result(replica, s, *round);
  for (const size_t s : results_.shards_of(bucket))
    take(replica, s, &Link::own, results_.slices(s, own));
}

void RingSum::take(int replica, size_t shard, std::optional<model::Tensors> Link::*which,
                   model::Tensors parts) {
  MutexLock lock(mutex_);
  Link& at = link(replica, shard);
  at.*which = std::move(parts);
  if (at.own && (at.sum || is_first(replica, shard)))
    add_later(shard, [this, replica, shard] { add(replica, shard); });
}

model::Tensors RingSum::sum_of(std::optional<model::Tensors> so_far, model::Tensors own) const {
  const bool is_narrow = is_short(setup_.precision);
  if (!so_far) return narrowed(own, setup_.precision);
  // Of two in float32, in the memory of the sum so far; of one in 16 bits, in that of the replica's
  // own gradient. Nobody needs a replica's own one before the result comes to the same place.
  model::Tensors& sums = is_narrow ? own : *so_far;
  const model::Tensors& parts = is_narrow ? *so_far : own;
  for (size_t i = 0; i < sums.size(); ++i) add_part(sums[i], parts[i], setup_.precision);
  return narrowed(sums, setup_.precision);
}

void RingSum::add(int replica, size_t shard) {
  const at::NoGradGuard no_grad;
  Link done;
  {
    MutexLock lock(mutex_);
    Link& at = link(replica, shard);
    std::swap(done, at);
    at.round = done.round + 1;
  }
  post_sum(replica, shard, done.round + 1);
  const model::Tensors sum = sum_of(std::move(done.sum), *std::move(done.own));
  if (replica == owner(shard))
    take_result(replica, shard, done.round, sum);
  else if (setup_.is_here(next(replica)))
    take(next(replica), shard, &Link::sum, sum);
  else
    send(Adding, next(replica), shard, done.round, sum);
}

void RingSum::take_result(int replica, size_t shard, uint64_t round, const model::Tensors& parts) {
  const int to = next(replica);
  if (to != owner(shard)) {
    if (setup_.is_here(to))
      take_result(to, shard, round, parts);
    else
      send(Results, to, shard, round, parts);
  }
  // Last: the worker may go on from here.
  results_.put(replica, shard, parts);
}

}  // namespace penstock::runtime
