#include "penstock/runtime/fabric/mesh/ring_sum.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

RingSum::RingSum(StageSumSetup setup)
    : setup_(std::move(setup)),
      shards_(make_shards(numbers_of(setup_.shapes), setup_.bucket_ends,
                          std::vector<double>(setup_.rank_of_replica.size(), 1.0))),
      results_(setup_, shards_) {
  links_.resize(setup_.rank_of_replica.size());
  for (auto& links : links_) links.resize(shards_.size());
}

net::Tag RingSum::tag(Phase phase, int to, size_t shard, uint64_t round) const {
  return {.run = setup_.run,
          .channel = setup_.first_channel + 2 * static_cast<uint32_t>(to) + phase,
          .sequence = round * shards_.size() + shard};
}

void RingSum::begin() {
  for (int replica = 0; replica < replicas(); ++replica) {
    for (size_t s = 0; setup_.is_here(replica) && s < shards_.size(); ++s) post_sum(replica, s, 0);
  }
}

void RingSum::post_sum(int replica, size_t shard, uint64_t round) {
  const int before = (replica + replicas() - 1) % replicas();
  if (is_first(replica, shard) || setup_.is_here(before)) return;
  auto parts = std::make_shared<model::Tensors>();
  const auto place = [parts, ranges = shards_[shard].ranges](const std::vector<uint64_t>& sizes) {
    std::vector<net::Memory> memory;
    if (sizes.size() != ranges.size()) {
      throw TransportError(fmt::format("sent a sum of gradients in {} parts, expected {}",
                                       sizes.size(), ranges.size()));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      at::Tensor& part = parts->emplace_back();
      if (sizes[i] != net::kAbsent) {
        part = at::empty({ranges[i].length}, at::kFloat);
        if (part.nbytes() != sizes[i]) {
          throw TransportError(fmt::format("sent a sum of gradients of {} bytes, expected {}",
                                           sizes[i], part.nbytes()));
        }
      }
      memory.push_back(memory_of(part));
    }
    return memory;
  };
  setup_.mesh.receive(rank_of(before), tag(Adding, replica, shard, round), place)
      ->on_end([weak = weak_from_this(), replica, shard, parts](net::Transfer::Result result) {
        const auto self = weak.lock();
        if (self && result == net::Transfer::Result::Done) self->take_sum(replica, shard, *parts);
      });
}

void RingSum::post_result(int replica, size_t shard, uint64_t round) {
  const int before = (replica + replicas() - 1) % replicas();
  if (replica == owner(shard) || setup_.is_here(before)) return;
  auto parts = std::make_shared<model::Tensors>();
  setup_.mesh
      .receive(rank_of(before), tag(Results, replica, shard, round),
               results_.place(replica, shard, parts))
      ->on_end(
          [weak = weak_from_this(), replica, shard, round, parts](net::Transfer::Result result) {
            const auto self = weak.lock();
            if (self && result == net::Transfer::Result::Done)
              self->take_result(replica, shard, round, *parts);
          });
}

void RingSum::send(Phase phase, int to, size_t shard, uint64_t round, const model::Tensors& parts) {
  const int urgency = gradient_urgency(shards_[shard].bucket);
  setup_.window->add(urgency, bytes_of_all(parts),
                     [&mesh = setup_.mesh, peer = rank_of(to), tag = tag(phase, to, shard, round),
                      out = OutgoingTensors(parts),
                      urgency] { return mesh.send(peer, tag, out.parts(), out.keep(), urgency); });
}

void RingSum::start(int replica, size_t bucket, Partials partials) {
  const at::NoGradGuard no_grad;
  const size_t count = setup_.bucket_ends[bucket] - results_.first_weight(bucket);
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
  for (const size_t s : results_.shards_of(bucket)) take_own(replica, s, results_.slices(s, own));
}

void RingSum::take_own(int replica, size_t shard, model::Tensors own) {
  MutexLock lock(mutex_);
  Link& at = link(replica, shard);
  at.own = std::move(own);
  at.has_own = true;
  add_if_complete(replica, shard);
}

void RingSum::take_sum(int replica, size_t shard, model::Tensors sum) {
  MutexLock lock(mutex_);
  Link& at = link(replica, shard);
  at.sum = std::move(sum);
  at.has_sum = true;
  add_if_complete(replica, shard);
}

void RingSum::add_if_complete(int replica, size_t shard) {
  const Link& at = link(replica, shard);
  if (!at.has_own || !(at.has_sum || is_first(replica, shard))) return;
  setup_.service->add(gradient_urgency(shards_[shard].bucket),
                      [weak = weak_from_this(), replica, shard] {
                        if (const auto self = weak.lock()) self->add(replica, shard);
                      });
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
  // In the memory of the sum so far. Where that is a replica's own gradient, nobody needs it before
  // the result comes to the same place.
  for (size_t i = 0; i < done.own.size(); ++i) {
    if (!done.has_sum) break;
    if (!done.sum[i].defined())
      done.sum[i] = done.own[i];
    else if (done.own[i].defined())
      done.sum[i].add_(done.own[i]);
  }
  const model::Tensors& sum = done.has_sum ? done.sum : done.own;
  if (replica == owner(shard))
    take_result(replica, shard, done.round, sum);
  else if (setup_.is_here(next(replica)))
    take_sum(next(replica), shard, sum);
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
