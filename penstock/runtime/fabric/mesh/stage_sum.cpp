#include "penstock/runtime/fabric/mesh/stage_sum.h"

#include <algorithm>
#include <utility>

#include "penstock/runtime/fabric/mesh/sum_engine.h"
#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/weight_shares.h"

namespace penstock::runtime {

namespace {

/// Shards up to this size are added in less time than another thread takes to wake.
constexpr int64_t kMostNumbersAtOnce = 16 << 10;

}  // namespace

model::Tensors first_gradients(const Partials& partials, size_t count) {
  model::Tensors first(count);
  for (const GroupGradients& group : partials) {
    for (size_t i = 0; i < count; ++i) {
      if (!first[i].defined()) first[i] = group.sums[i];
    }
  }
  return first;
}

int urgency_of_sum(uint64_t round, size_t bucket) {
  constexpr uint64_t kRounds = 4096;
  constexpr uint64_t kBuckets = 1 << 16;
  return -1 - static_cast<int>(round % kRounds * kBuckets + std::min(bucket, kBuckets - 1));
}

StageSum::StageSum(StageSumSetup setup, const std::vector<double>& shares)
    : setup_(std::move(setup)),
      shards_(
          make_shards(numbers_of(setup_.shapes), setup_.bucket_ends, shares, setup_.most_numbers)),
      results_(setup_.shapes, setup_.bucket_ends, setup_.rank_of_replica.size(), shards_,
               setup_.precision, setup_.own_shards_only) {}

WaitResult StageSum::finish(int replica, size_t bucket, BucketSum& sum, Wait& wait) {
  SumEngine engine(setup_.mesh, *setup_.service);
  return results_.finish(replica, bucket, sum, wait, &engine);
}

net::Tag StageSum::tag(Phase phase, int replica, size_t shard, uint64_t round) const {
  return {.run = setup_.run,
          .channel = setup_.first_channel + 2 * static_cast<uint32_t>(replica) + phase,
          .sequence = round * shards_.size() + shard};
}

void StageSum::when_received(net::Transfer& transfer, std::function<void()> then) {
  transfer.on_end([weak = weak_from_this(), then = std::move(then)](net::Transfer::Result result) {
    const auto self = weak.lock();
    if (self && result == net::Transfer::Result::Done) then();
  });
}

int StageSum::urgency_of(const net::Tag& tag) const {
  return urgency_of_sum(tag.sequence / shards_.size(),
                        shards_[tag.sequence % shards_.size()].bucket);
}

void StageSum::add_later(size_t shard, std::function<void()> task) {
  const auto urgency = -static_cast<int>(shards_[shard].bucket);
  int64_t numbers = 0;
  for (const ShardRange& range : shards_[shard].ranges) numbers += range.length;
  const auto length =
      numbers > kMostNumbersAtOnce ? SumService::Length::Long : SumService::Length::Short;
  setup_.service->add(
      urgency,
      [weak = weak_from_this(), task = std::move(task)] {
        if (const auto self = weak.lock()) task();
      },
      length);
}

void StageSum::send_in_turn(Phase phase, const net::Tag& tag, int64_t bytes, SendWindow::Send send,
                            double times) {
  const auto kind = phase == Adding ? SendWindow::Kind::Part : SendWindow::Kind::Result;
  setup_.window->add(urgency_of(tag), kind, shares_of_phases_[phase] * times, bytes,
                     std::move(send));
}

void StageSum::send_later(Phase phase, int peer, net::Tag tag, const model::Tensors& parts) {
  send_in_turn(
      phase, tag, bytes_of_all(parts),
      [&mesh = setup_.mesh, peer, tag, out = OutgoingTensors(parts), urgency = urgency_of(tag)] {
        return mesh.send(peer, tag, out.parts(), out.keep(), urgency);
      });
}

}  // namespace penstock::runtime
