// What all generators share: one list of compute actions per worker, filled from the worker's own micro-batches (replica k of r runs k, k +
// r, k + 2r, ...).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/util/arithmetic.h"

namespace penstock::schedule {

/// One worker's list while a generator fills it.
class ComputeList {
 public:
  ComputeList(const ScheduleShape& shape, StageId stage, int replica, std::vector<Action>& actions)
      : accumulate_(shape.accumulate), stage_(stage), replica_(replica), stride_(shape.replicas[stage.index()]), actions_(actions) {}

  StageId stage() const { return stage_; }
  /// Number of this worker's micro-batches below `end`; their local indices are 0 .. result - 1.
  int64_t count_below(int64_t end) const { return end <= replica_ ? 0 : ceil_div(end - replica_, stride_); }
  /// The micro-batch with this local index.
  MicroBatchId micro_batch(int64_t local) const { return MicroBatchId{replica_ + local * stride_}; }
  void forward(int64_t local) { add(Op::Forward, local); }
  void backward(int64_t local) { add(Op::Backward, local); }
  /// 1F1B over the local indices [begin, end): `depth` forwards, then backward and forward in turn, then the remaining backwards.
  void one_forward_one_backward(int64_t begin, int64_t end, int64_t depth) {
    int64_t next_forward = begin;
    while (next_forward < std::min(end, begin + depth)) forward(next_forward++);
    for (int64_t local = begin; local < end; ++local) {
      backward(local);
      if (next_forward < end) forward(next_forward++);
    }
  }

 private:
  void add(Op op, int64_t local) {
    const MicroBatchId b = micro_batch(local);
    actions_.push_back({.op = op, .stage = stage_, .micro_batch = b, .mini_batch = MiniBatchId{b.value / accumulate_}, .peer = stage_});
  }

  int64_t accumulate_;
  StageId stage_;
  int64_t replica_;
  int64_t stride_;
  std::vector<Action>& actions_;
};

/// Calls fill(ComputeList&) for every worker. `kind` is the schedule's name.
template <class Fill>
Schedule make_compute_schedule(std::string_view kind, const ScheduleShape& shape, Fill fill) {
  Schedule schedule{.kind = std::string(kind), .shape = shape, .workers = {}};
  schedule.workers.resize(static_cast<size_t>(shape.num_workers()));
  size_t worker = 0;
  for (int s = 0; s < shape.num_stages(); ++s) {
    for (int replica = 0; replica < shape.replicas[static_cast<size_t>(s)]; ++replica) {
      auto& actions = schedule.workers[worker++];
      ComputeList list(shape, StageId{s}, replica, actions);
      actions.reserve(static_cast<size_t>(2 * list.count_below(shape.micro_batches)));
      fill(list);
    }
  }
  return schedule;
}

/// Calls visit(begin, end) with the worker's local indices of each mini-batch in which it has any, in turn.
template <class Visit>
void for_each_mini_batch(const ScheduleShape& shape, const ComputeList& list, Visit visit) {
  const int64_t count = list.count_below(shape.micro_batches);
  for (int64_t begin = 0; begin < count;) {
    const int64_t next_mini_batch = shape.mini_batch_of(list.micro_batch(begin)).value + 1;
    const int64_t end = list.count_below(std::min(saturating_mul(next_mini_batch, shape.accumulate), shape.micro_batches));
    visit(begin, end);
    begin = end;
  }
}

}  // namespace penstock::schedule
