// What the replicas of a stage do for sums that travel while they compute, as the runtime does it
// (runtime/sums/replica_sums.h); internal to the simulator.
//
// The last B (or W) of a mini-batch gives away bucket after bucket, SYNC what is left. Then the
// next forward pass on the newest weights takes each sum, and steps its weights, when it comes to
// the bucket's first layer. What it leaves is taken before the last B of the next mini-batch and at
// the end of the list. Where everything is needed at once (norms, the policy `latest`, weights that
// a stage uses twice), SYNC takes all sums.
//
// Each sum takes processor time from its replicas (GradientBucket::processor_ns). A replica pays
// with time in which it waits, for others since it gave the gradients away or for this sum, and
// else with its computing: then it comes to what needs the sum so much later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/sum_lanes.h"
#include "penstock/simulate/values.h"

namespace penstock::simulate::detail {

/// What an action of a worker takes in addition.
struct TakenSums {
  int64_t waiting_ns = 0;
  int64_t working_ns = 0;  ///< steps, and the processor time of sums
};

/// Where a worker is.
struct Moment {
  int64_t now_ns = 0;
  int64_t idle_ns = 0;  ///< for how long it has waited so far
};

class ReplicaSums {
 public:
  /// Keeps references.
  ReplicaSums(const Costs& costs, const schedule::ScheduleShape& shape,
              const schedule::WorkerTable& table, SumLanes& lanes);

  bool carries(StageId stage) const { return lanes_.carries(stage); }

  /// Takes what the action needs, if it begins now and computes for `work_ns`. False while the
  /// worker has to wait for a sum: call again with the same arguments.
  bool take(const schedule::Action& action, int32_t worker, const Moment& now, int64_t work_ns);
  /// Takes all sums of the stage that are due.
  bool take_all(StageId stage, int32_t worker, const Moment& now);
  /// Gives what is left of the mini-batch of a SYNC and, where SYNC waits, takes all sums.
  bool sync(const schedule::Action& action, int32_t worker, const Moment& now, EventQueue& events);
  /// What the calls above took since the last call of this.
  TakenSums taken(StageId stage, int32_t worker);

  /// B or W has computed for `work_ns` until now: gives the buckets away if it was the last one of
  /// the mini-batch.
  void made(const schedule::Action& action, int32_t worker, const Moment& now, int64_t work_ns,
            EventQueue& events);
  /// STEP, which would take `step_ns`. True when it leaves that to the next forward pass. Several
  /// calls for the same action do what one does.
  bool step(const schedule::Action& action, int32_t worker, int64_t step_ns);
  /// Whether sums are due, and how many replicas have given their part of the first of them.
  bool are_due(StageId stage, int32_t worker) const;
  int32_t given(StageId stage, int32_t worker) const;

 private:
  struct Replica {
    /// The first bucket whose sum is due; as many as there are: none.
    size_t next = 0;
    MiniBatchId mini_batch{-1};  ///< whose sums are due
    MiniBatchId given{-1};       ///< the last one whose buckets were given away
    int64_t latest = 0;          ///< version of the weights
    int64_t step_ns = 0;
    bool steps = false;  ///< taking a sum steps its weights
    /// How much of its idle time is no longer there to pay with: all until the gradients were given
    /// away, and what has paid since.
    int64_t spent_idle_ns = 0;
    TakenSums taken;
    std::map<int64_t, int64_t> passes;  ///< by mini-batch: those that have made gradients
  };

  size_t index_of(StageId stage, int32_t worker) const;
  Replica& replica(StageId stage, int32_t worker) { return replicas_[index_of(stage, worker)]; }
  const std::vector<plan::GradientBucket>& buckets(StageId stage) const {
    return costs_.stages[stage.index()].buckets;
  }
  bool waits(StageId stage) const;
  bool is_last_pass(const schedule::Action& action, int32_t worker) const;
  bool take_next(StageId stage, int32_t worker, const Moment& needed);

  const Costs& costs_;
  const schedule::ScheduleShape& shape_;
  const schedule::WorkerTable& table_;
  SumLanes& lanes_;
  std::vector<size_t> first_;  ///< per stage, in replicas_
  std::vector<Replica> replicas_;
};

}  // namespace penstock::simulate::detail
