// The sums of gradients over the replicas of one stage in the memory of GPUs, and the stepped
// weights that replicas with shares of the optimiser's state give each other. The bits are those of
// the sums in the host's memory (plan/sync_precision.h): each replica adds the same part of all
// gradients, in the order of the groups, and gives the result to the others (a reduce-scatter and
// an all-gather, replica_exchange.h). Internal to runtime.
//
//   DeviceSum sum(exchange, device, shapes, grouping, meet);
//   at::Tensor numbers = sum.start(mini_batch, std::move(partials));
//   Tensors sums = sum.finish(added);   // `numbers` of all replicas, added by the fabric
//
// The host waits for no GPU: the fabric carries, in the host's memory, which replica has a gradient
// of which weight and group, and through it replicas of a process wait for each other's threads.
// Weights go in pieces of some 32 MiB, so that little memory is needed beside the gradients and
// their sums.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "penstock/runtime/device/replica_exchange.h"
#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/fabric/partials.h"
#include "penstock/runtime/fabric/weight_shares.h"
#include "penstock/runtime/gradient_buffer.h"

namespace penstock::runtime {

/// Of one replica, whose thread owns it. Calls come in the same order on all replicas of the stage.
class DeviceSum {
 public:
  /// `shapes`: of the stage's weights. `meet`: as ReplicaExchange::exchange() takes it.
  /// `piece_bytes`: of float32, before the last weight of a piece.
  DeviceSum(ReplicaExchange& exchange, WorkerDevice& device, std::vector<model::Shape> shapes,
            const Grouping& grouping, std::function<void()> meet,
            int64_t piece_bytes = int64_t{32} << 20);

  /// How many numbers start() returns, for mini-batches of so many micro-batches.
  static int64_t num_numbers(size_t weights, int64_t accumulate) {
    return static_cast<int64_t>(weights) + accumulate;
  }

  /// Takes the replica's part of the next sum; `partials` may be none. Returns numbers to be added
  /// over the replicas: float32, in the host's memory.
  at::Tensor start(MiniBatchId mini_batch, Partials partials);
  /// The sums, undefined where no replica has a gradient. They share memory: not exclusive.
  model::Tensors finish(const at::Tensor& added);

  /// Fills in the other replicas' shares of the weights, of which this replica has its own.
  void gather(const model::Tensors& weights, const std::vector<WeightShare>& shares);

 private:
  /// Some consecutive weights, one behind the other, each at a multiple of 16 bytes.
  struct Piece {
    size_t first = 0;              ///< weight
    std::vector<int64_t> offsets;  ///< of each weight, in numbers, and the end
  };
  struct Range {
    int64_t begin = 0;
    int64_t length = 0;
  };
  /// The part of a piece that a replica adds.
  Range range_of(const Piece& piece, size_t replica) const;
  at::Tensor flat(const Piece& piece, model::Tensors& gradients) const;
  at::TensorOptions on_device() const;
  /// Where a group stands in the numbers of start(): its first micro-batch in the mini-batch.
  size_t place_of(int64_t group) const;
  /// By replica: the groups that it has given, ascending.
  std::vector<std::vector<int64_t>> groups_of(const float* has_group) const;
  /// The replica's part of the piece, added over all groups, as it travels.
  at::Tensor add_part(size_t piece, const std::vector<std::vector<int64_t>>& groups);
  at::Tensor add_up(const Piece& piece, const at::Tensor& own_part);
  void exchange(ReplicaExchange::PerReplica leaving, const ReplicaExchange::PerReplica& places);

  ReplicaExchange& exchange_;
  WorkerDevice& device_;
  std::vector<model::Shape> shapes_;
  Grouping grouping_;
  std::function<void()> meet_;
  std::vector<Piece> pieces_;
  int64_t first_micro_batch_ = 0;                            ///< of the sum that has been started
  std::vector<std::map<int64_t, at::Tensor>> contribution_;  ///< by piece and group
};

}  // namespace penstock::runtime
