// Runs a schedule in the abstract: no times, only who may go on. Each worker walks its list; a send waits for a credit of its channel (or,
// with 0 credits, for the receive itself), a receive for its message, a sync for the other replicas. Since every wait is for one named
// event, the outcome does not depend on the order in which workers are tried, and each action is tried at most twice.
//
// A schedule that is not lowered has no messages: F(s,b) waits for F(s-1,b) and B(s,b) for F(s,b) and B(s+1,b) instead.
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

  /// After run(): whether the worker stands in the middle of its list, and at which action.
  bool is_blocked(WorkerId worker) const { return position_[worker.index()] < list(worker).size(); }
  const Action& blocked_at(WorkerId worker) const { return list(worker)[position_[worker.index()]]; }
  /// The workers that the blocked one waits for; itself when its own list is in the wrong order.
  std::vector<WorkerId> waits_for(WorkerId worker) const;
  /// Number of workers that waits_for() looks at.
  int64_t wait_search_cost(WorkerId worker) const;
  /// The largest number of messages that were in one channel at once.
  int64_t most_in_flight() const { return most_in_flight_; }

 private:
  const std::vector<Action>& list(WorkerId worker) const { return facts_.workers()[worker.index()]; }
  void advance(WorkerId worker);
  bool attempt(WorkerId worker, const Action& action);
  bool attempt_compute(const Action& action);
  bool attempt_send(WorkerId worker, const Action& action);
  bool attempt_receive(WorkerId worker, const Action& action);
  bool attempt_sync(WorkerId worker, const Action& action);
  void finish_action_of(WorkerId worker);
  void wake(WorkerId worker);
  size_t sync_cell(const Action& action) const {
    return action.stage.index() * static_cast<size_t>(facts_.mini_batches) + action.mini_batch.index();
  }

  const Facts& facts_;
  const MessageIndex& index_;
  int64_t credits_;
  std::vector<size_t> position_;    // by worker
  std::vector<WorkerId> runnable_;  // a stack; a worker may stand in it twice, which is harmless
  std::vector<uint8_t> computed_;   // by cell: bit 0 forward, bit 1 backward (only when not lowered)
  std::vector<int32_t> arrived_;    // by message: sent and not received
  std::vector<int32_t> waiting_;    // by message: the worker that waits for it to arrive (0 credits: at either end), or -1
  std::vector<int64_t> in_flight_;  // by channel
  std::vector<int32_t> no_credit_;  // by channel: the worker that waits to send, or -1
  std::vector<int32_t> at_sync_;    // by (stage, mini-batch): replicas that arrived
  std::vector<uint8_t> in_sync_;    // by worker: it has been counted in at_sync_
  int64_t most_in_flight_ = 0;
};

}  // namespace penstock::verify
