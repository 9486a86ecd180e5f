// What all generators share: one list of compute actions per worker, filled from the worker's own
// micro-batches (replica k of r runs k, k + r, k + 2r, ...). A worker with several stages has
// several ComputeLists that write to the same actions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "penstock/schedule/generators/generator.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {

/// One stage's part of a worker's list while a generator fills it.
class ComputeList {
 public:
  ComputeList(const ScheduleShape& shape, StageId stage, int replica, std::vector<Action>& actions)
      : accumulate_(shape.accumulate),
        stage_(stage),
        replica_(replica),
        stride_(shape.replicas[stage.index()]),
        actions_(&actions) {}

  StageId stage() const { return stage_; }
  /// Number of this worker's micro-batches below `end`; their local indices are 0 .. result - 1.
  int64_t count_below(int64_t end) const {
    return end <= replica_ ? 0 : ceil_div(end - replica_, stride_);
  }
  /// The micro-batch with this local index.
  MicroBatchId micro_batch(int64_t local) const { return MicroBatchId{replica_ + local * stride_}; }
  void add(Op op, int64_t local) {
    const MicroBatchId b = micro_batch(local);
    actions_->push_back({.op = op,
                         .stage = stage_,
                         .micro_batch = b,
                         .mini_batch = MiniBatchId{b.value / accumulate_},
                         .peer = stage_});
  }
  void forward(int64_t local) { add(Op::Forward, local); }
  /// What was added last runs together with what is added next, on the worker.
  void run_last_with_next() { actions_->back().with_next = true; }
  void backward(int64_t local) { add(Op::Backward, local); }
  void backward_input(int64_t local) { add(Op::BackwardInput, local); }
  void backward_weight(int64_t local) { add(Op::BackwardWeight, local); }
  /// 1F1B over the local indices [begin, end): `depth` forwards, then backward and forward
  /// alternately, then the remaining backwards.
  void one_forward_one_backward(int64_t begin, int64_t end, int64_t depth) {
    int64_t next_forward = begin;
    while (next_forward < std::min(end, begin + depth)) forward(next_forward++);
    for (int64_t local = begin; local < end; ++local) {
      backward(local);
      if (next_forward < end) forward(next_forward++);
    }
  }
  /// The same with split backwards: W(b) comes directly after I(b + delay), the last `delay` W at
  /// the end.
  void one_forward_one_split_backward(int64_t begin, int64_t end, int64_t depth, int64_t delay) {
    int64_t next_forward = begin;
    int64_t next_weight = begin;
    while (next_forward < std::min(end, begin + depth - 1)) forward(next_forward++);
    for (int64_t local = begin; local < end; ++local) {
      if (next_forward < end) forward(next_forward++);
      backward_input(local);
      if (local - begin >= delay) backward_weight(next_weight++);
    }
    while (next_weight < end) backward_weight(next_weight++);
  }

 private:
  int64_t accumulate_;
  StageId stage_;
  int64_t replica_;
  int64_t stride_;
  std::vector<Action>* actions_;
};

/// Calls fill(chunks) for every worker, with one list for each stage that it holds, ascending.
/// `passes` is the number of compute actions per stage and micro-batch.
template <class Fill>
WorkerLists make_chunked_lists(const ScheduleShape& shape, int passes, Fill fill) {
  const WorkerTable table(shape);
  WorkerLists workers(static_cast<size_t>(table.num_workers()));
  std::vector<ComputeList> chunks;
  for (size_t w = 0; w < workers.size(); ++w) {
    chunks.clear();
    int64_t count = 0;
    for (const auto& held : table.held_by(WorkerId{static_cast<int32_t>(w)})) {
      chunks.emplace_back(shape, held.stage, held.replica, workers[w]);
      count += chunks.back().count_below(shape.micro_batches);
    }
    workers[w].reserve(static_cast<size_t>(passes * count));
    fill(std::span<ComputeList>(chunks));
  }
  return workers;
}

/// The same for strategies whose workers hold one stage each: fill(list).
template <class Fill>
WorkerLists make_lists(const ScheduleShape& shape, Fill fill, int passes = 2) {
  return make_chunked_lists(shape, passes,
                            [&](std::span<ComputeList> chunks) { fill(chunks.front()); });
}

/// Calls visit(begin, end) with the worker's local indices of each mini-batch in which it has any,
/// in order.
template <class Visit>
void for_each_mini_batch(const ScheduleShape& shape, const ComputeList& list, Visit visit) {
  const int64_t count = list.count_below(shape.micro_batches);
  for (int64_t begin = 0; begin < count;) {
    const int64_t next_mini_batch = shape.mini_batch_of(list.micro_batch(begin)).value + 1;
    const int64_t end = list.count_below(
        std::min(saturating_mul(next_mini_batch, shape.accumulate), shape.micro_batches));
    visit(begin, end);
    begin = end;
  }
}

}  // namespace penstock::schedule
