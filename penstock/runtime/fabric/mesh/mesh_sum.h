// Fabric::sum() over ranks, `ordered`: each of the r replicas of a stage owns 1/r of every
// gradient. All send each owner its part of their groups' sums; the owner adds them in the order of
// the groups, as one thread would, and sends the result to all.
//
// Steps: 2. Bytes that each replica sends, with M bytes of gradients and g groups in all:
// (r-1)/r M for each of its g/r groups, and (r-1)/r M of results; with one group per replica
// 2(r-1)/r M, as a ring all-reduce. Each sum is the same bit for bit as one thread's, whatever the
// timing (Patarasuk and Yuan 2009 have the ring, whose order of addition differs from slice to
// slice).
#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/runtime/fabric/mesh/slot_exchange.h"
#include "penstock/runtime/fabric/partials.h"

namespace penstock::runtime {

/// The sums of one stage. Thread-safe: the stage's replicas on this rank call it at the same time.
class MeshSum {
 public:
  /// Uses the channels from `first_channel` on. `count`: tensors per replica.
  MeshSum(net::Mesh& mesh, uint32_t run, uint32_t first_channel, std::vector<int> rank_of_replica,
          size_t count);

  static uint32_t channels(size_t replicas) {
    return static_cast<uint32_t>(2 * replicas * replicas);
  }
  void start();
  WaitResult run(int replica, Partials partials, model::Tensors& sums, Wait& wait);
  void close() { slots_.close(); }

 private:
  enum Phase : uint8_t { Parts, Results };
  /// What one replica gives another one: of each group and gradient the slice that the other owns.
  struct Contribution {
    std::vector<int64_t> groups;
    std::vector<RawLayout> layouts;  ///< of the gradients
    model::Tensors slices;           ///< group by group
  };
  struct Replica {
    uint64_t round = 0;
    std::vector<RawMessage> parts;  ///< posted for the round, by replica
  };
  using Slot = std::tuple<Phase, int, int, uint64_t>;  ///< phase, from, to, round

  size_t replicas() const { return rank_of_replica_.size(); }
  bool is_here(int replica) const;
  net::Tag tag(Phase phase, int from, int to, uint64_t round) const;
  void post_parts(int replica);
  /// The slice of a flat gradient that the replica owns.
  at::Tensor slice(const at::Tensor& gradient, int owner) const;
  void send_parts(int replica, const Partials& partials);
  WaitResult receive_parts(int replica, std::vector<Contribution>& all, Wait& wait);
  Contribution contribution_of(const Partials& partials, int owner) const;
  /// Adds up this replica's slices and puts them into `sums`.
  void add_up(int replica, const std::vector<Contribution>& all, model::Tensors& sums) const;
  RawMessage post_results(int from, int to, const model::Tensors& sums, uint64_t round);
  void send_results(int replica, const model::Tensors& sums);

  net::Mesh& mesh_;
  uint32_t run_;
  uint32_t first_channel_;
  std::vector<int> rank_of_replica_;
  size_t count_;
  std::vector<Replica> state_;  ///< by replica; each touched by its own worker
  SlotExchange<Slot, Contribution> slots_;
};

}  // namespace penstock::runtime
