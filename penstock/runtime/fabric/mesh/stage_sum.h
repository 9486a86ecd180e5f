// The sum of the gradients of one stage whose replicas are on several ranks, bucket by bucket, in
// the background: what the methods of plan/gradient_sync.h have in common. Internal to fabric/mesh.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/runtime/fabric/gradient_shards.h"
#include "penstock/runtime/fabric/mesh/bucket_results.h"
#include "penstock/runtime/fabric/mesh/stage_sum_setup.h"
#include "penstock/runtime/fabric/partials.h"
#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

/// Of each weight of a bucket, the gradient of the first group that has one.
model::Tensors first_gradients(const Partials& partials, size_t count);

/// Of what is sent for a bucket in a round. Behind all messages between stages; sums of earlier
/// rounds first: who is late needs them before it can give its parts of the next round. Then
/// buckets that the next forward pass needs first. Rounds are counted anew every 4096, where one
/// may overtake the other; no value depends on the order.
int urgency_of_sum(uint64_t round, size_t bucket);

/// Thread-safe. Each replica starts every bucket once per round, and finishes it before it starts
/// it again.
class StageSum : public std::enable_shared_from_this<StageSum> {
 public:
  virtual ~StageSum() = default;
  StageSum(const StageSum&) = delete;
  StageSum& operator=(const StageSum&) = delete;

  /// How many channels one uses.
  static uint32_t channels(size_t replicas) { return static_cast<uint32_t>(2 * replicas); }

  /// Posts the first receives; once, on every rank.
  virtual void begin() = 0;
  /// Fabric::start_sum() and finish_sum().
  virtual void start(int replica, size_t bucket, Partials partials) = 0;
  virtual WaitResult finish(int replica, size_t bucket, BucketSum& sum, Wait& wait);
  /// Wakes everybody; all later calls return Closed.
  void close() { results_.close(); }

 protected:
  /// What is on its way of a shard: to be added, or complete.
  enum Phase : uint8_t { Adding, Results };

  /// Uses the channels from setup.first_channel on. `shares`: make_shards().
  StageSum(StageSumSetup setup, const std::vector<double>& shares);

  int replicas() const { return static_cast<int>(setup_.rank_of_replica.size()); }
  int rank_of(int replica) const { return setup_.rank_of_replica[static_cast<size_t>(replica)]; }
  size_t weights_of(size_t bucket) const {
    return setup_.bucket_ends[bucket] - results_.first_weight(bucket);
  }
  /// urgency_of_sum() of a message.
  int urgency_of(const net::Tag& tag) const;
  /// Of the messages from or to this replica.
  net::Tag tag(Phase phase, int replica, size_t shard, uint64_t round) const;

  /// Calls `then` when the message has come (Transfer::on_end), if this still exists.
  void when_received(net::Transfer& transfer, std::function<void()> then);
  /// Calls `task` on the thread that adds, if this still exists.
  void add_later(size_t shard, std::function<void()> task);
  /// Calls `send` when it is the shard's turn. `times`: as many bytes as shares_of_phases_ expects.
  void send_in_turn(Phase phase, const net::Tag& tag, int64_t bytes, SendWindow::Send send,
                    double times = 1);
  void send_later(Phase phase, int peer, net::Tag tag, const model::Tensors& parts);

  const StageSumSetup setup_;
  const std::vector<Shard> shards_;
  BucketResults results_;
  /// Of what this rank sends, how much is of each phase: SendWindow::add().
  std::array<double, 2> shares_of_phases_ = {0.5, 0.5};
};

}  // namespace penstock::runtime
