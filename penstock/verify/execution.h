// Runs a schedule without times: it only finds out which worker can continue. Each worker walks its
// list; a send waits for a credit of its channel (or, with 0 credits, for the receive itself), a
// receive for its message, a sync for the other replicas, a norm for all workers, and F, R, B and I
// of a stage with a team for the other members. Since every wait is for named events, the outcome
// does not depend on the order in which workers are tried, and an action is tried again only when
// something that it waits for has happened.
//
// A schedule that is not lowered has no messages: F(s,b) waits for F(s-1,b); B(s,b) and I(s,b) for
// F(s,b) and for B or I(s+1,b); W(s,b) for I(s,b); R(s,b) for F(s,b) instead. Two actions that run
// together wait for what either waits for. Members of a team have their data and then meet.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/verify/message_index.h"

namespace penstock::verify {

class Execution {
 public:
  /// `facts` and `index` must outlive the execution.
  Execution(const Facts& facts, const MessageIndex& index, int64_t credits);

  /// True when every worker reached the end of its list.
  bool run();

  /// After run(): whether the worker is blocked in the middle of its list, and at which action.
  bool is_blocked(WorkerId worker) const { return position_[worker.index()] < list(worker).size(); }
  size_t position(WorkerId worker) const { return position_[worker.index()]; }
  const Action& blocked_at(WorkerId worker) const {
    return list(worker)[position_[worker.index()]];
  }
  /// After run(): the worker that the blocked one waits for; itself when its own list is in the
  /// wrong order. Not where is_at_barrier(): then it waits for all workers of barrier_members()
  /// that are not at the same barrier.
  WorkerId waits_for(WorkerId worker) const;
  /// After run(): whether the blocked worker waits at a SYNC, at a NORM or for its team.
  bool is_at_barrier(WorkerId worker) const;
  /// Barriers with the same key have the same members.
  int64_t barrier_key(const Action& barrier) const;
  /// Calls visit(worker) for each worker that takes part in the SYNC, the NORM or the team's
  /// computation.
  template <class Visit>
  void barrier_members(const Action& barrier, Visit visit) const {
    if (barrier.op == Op::NormGradients) {
      for (int32_t w = 0; w < facts_.table.num_workers(); ++w) visit(WorkerId{w});
    } else if (is_compute(barrier.op)) {
      const schedule::TeamPlace place = facts_.places.of(barrier.stage);
      for (int m = 0; m < place.size; ++m)
        visit(facts_.owner(StageId{place.first.value + m}, barrier.micro_batch));
    } else {
      for (int k = 0; k < facts_.table.replicas(barrier.stage); ++k)
        visit(facts_.table.worker_of_replica(barrier.stage, k));
    }
  }
  /// Whether the worker is blocked at the same barrier.
  bool is_at(WorkerId worker, const Action& barrier) const {
    return is_blocked(worker) && same_barrier(blocked_at(worker), barrier) && is_at_barrier(worker);
  }
  /// The largest number of messages that were in one channel at once.
  int64_t most_in_flight() const { return most_in_flight_; }

 private:
  const std::vector<Action>& list(WorkerId worker) const {
    return facts_.workers()[worker.index()];
  }
  bool same_barrier(const Action& a, const Action& b) const {
    if (a.op != b.op) return false;
    if (is_compute(a.op))
      return a.micro_batch == b.micro_batch &&
             facts_.places.of(a.stage).first == facts_.places.of(b.stage).first;
    return a.mini_batch == b.mini_batch && (a.op == Op::NormGradients || a.stage == b.stage);
  }
  /// Of the replica that runs the micro-batch.
  size_t team_of(const Action& action) const {
    const int replicas = facts_.table.replicas(action.stage);
    return first_team_[action.stage.index()] +
           static_cast<size_t>(action.micro_batch.value % replicas);
  }
  void advance(WorkerId worker);
  bool attempt(WorkerId worker, const Action& action);
  bool attempt_compute(WorkerId worker, const Action& action);
  bool attempt_team(WorkerId worker, const Action& action);
  /// What waits for the result of the computation can go on. Only when not lowered.
  void note_computed(const Action& action);
  void wake_team(StageId stage, MicroBatchId micro_batch);
  bool has_data_at(WorkerId worker) const;
  /// The computation that runs together with the one the worker is at; null: none.
  const Action* together_with(WorkerId worker) const;
  bool has_data(const Action& action) const;
  bool attempt_send(WorkerId worker, const Action& action);
  bool attempt_receive(WorkerId worker, const Action& action);
  bool meet(WorkerId worker, int32_t& waiting);
  bool attempt_barrier(WorkerId worker, const Action& action);
  void finish_action_of(WorkerId worker);
  void wake(WorkerId worker);

  const Facts& facts_;
  const MessageIndex& index_;
  int64_t credits_;
  std::vector<size_t> position_;    // by worker
  std::vector<WorkerId> runnable_;  // a stack
  std::vector<uint8_t> is_queued_;  // by worker: it is in runnable_
  std::vector<uint8_t> computed_;   // by cell: a bit per compute action (only when not lowered)
  /// By message: sent and not received, and the worker that waits for it to arrive (0 credits: at
  /// either end), or -1.
  struct Message {
    int32_t waiting = -1;
    int32_t arrived = 0;
  };
  std::vector<Message> messages_;
  std::vector<int64_t> in_flight_;  // by channel
  std::vector<int32_t> no_credit_;  // by channel: the worker that waits to send, or -1
  std::vector<int32_t> at_sync_;    // by (stage, mini-batch): replicas that arrived
  std::vector<int32_t> at_norm_;    // by mini-batch: workers that arrived
  /// The computation that the members of a team have come to.
  struct Meeting {
    int32_t arrived = 0;
    Op op = Op::Forward;
    MicroBatchId micro_batch;
  };
  std::vector<size_t> first_team_;  // by stage: its team of replica 0; members have the same
  std::vector<Meeting> at_team_;    // by team of a replica
  // by worker: it has been counted in at_sync_, at_norm_ or at_team_
  std::vector<uint8_t> in_barrier_;
  int64_t most_in_flight_ = 0;
};

}  // namespace penstock::verify
