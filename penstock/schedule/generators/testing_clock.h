// An exact clock for schedules before lowering, independent of the simulator: messages take no
// time, each kind of action takes a fixed time, every worker goes through its list in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::schedule::testing {

struct Times {
  int64_t forward = 1;
  int64_t backward_input = 1;
  int64_t backward_weight = 1;

  int64_t backward() const { return backward_input + backward_weight; }
  int64_t of(Op op) const {
    if (op == Op::Forward) return forward;
    if (op == Op::Backward) return backward();
    return op == Op::BackwardInput ? backward_input : backward_weight;
  }
};

struct Clocking {
  int64_t makespan = 0;
  std::vector<int64_t> work;   ///< per worker
  std::vector<int64_t> begin;  ///< of the worker's first action
  std::vector<int64_t> end;    ///< of its last one

  /// How long the busiest worker waits, from the start of the first action anywhere to the end of
  /// the last.
  int64_t idle() const { return makespan - *std::max_element(work.begin(), work.end()); }
  /// How long one worker waits between its own first and last action.
  int64_t idle_within(size_t worker) const { return end[worker] - begin[worker] - work[worker]; }
};

/// Nothing when the lists wait for each other. O(actions).
inline std::optional<Clocking> clock_schedule(const Schedule& schedule, const Times& times) {
  const ScheduleShape& shape = schedule.shape;
  const WorkerTable table(shape);
  const auto cell = [&](StageId stage, MicroBatchId b) {
    return stage.index() * static_cast<size_t>(shape.micro_batches) + b.index();
  };
  constexpr int64_t kNotYet = -1;
  std::vector<int64_t> forward_end(static_cast<size_t>(shape.num_stages() * shape.micro_batches),
                                   kNotYet);
  std::vector<int64_t> gradient_end = forward_end;
  const size_t count = schedule.workers.size();
  Clocking result{.makespan = 0,
                  .work = std::vector<int64_t>(count),
                  .begin = std::vector<int64_t>(count),
                  .end = std::vector<int64_t>(count)};
  std::vector<size_t> position(count);
  std::vector<size_t> awake;
  for (size_t w = 0; w < count; ++w) awake.push_back(w);
  const auto ready_at = [&](const Action& action) {
    const StageId stage = action.stage;
    if (action.op == Op::Forward) {
      return stage.value > 0 ? forward_end[cell(StageId{stage.value - 1}, action.micro_batch)] : 0;
    }
    if (action.op == Op::BackwardWeight) return gradient_end[cell(stage, action.micro_batch)];
    const int64_t own = forward_end[cell(stage, action.micro_batch)];
    if (stage.value + 1 >= shape.num_stages()) return own;
    const int64_t gradients = gradient_end[cell(StageId{stage.value + 1}, action.micro_batch)];
    return own == kNotYet || gradients == kNotYet ? kNotYet : std::max(own, gradients);
  };
  while (!awake.empty()) {
    const size_t w = awake.back();
    awake.pop_back();
    while (position[w] < schedule.workers[w].size()) {
      // One action, or two that run together.
      const Action* first = &schedule.workers[w][position[w]];
      const size_t together = first->with_next ? 2 : 1;
      int64_t start = result.end[w];
      int64_t work = 0;
      bool waits = false;
      for (size_t i = 0; i < together; ++i) {
        const int64_t ready = ready_at(first[i]);
        waits = waits || ready == kNotYet;
        start = std::max(start, ready);
        work += times.of(first[i].op);
      }
      if (waits) break;
      if (position[w] == 0) result.begin[w] = start;
      result.end[w] = start + work;
      result.work[w] += work;
      result.makespan = std::max(result.makespan, result.end[w]);
      position[w] += together;
      for (size_t i = 0; i < together; ++i) {
        const Action& action = first[i];
        const bool forward = action.op == Op::Forward;
        if (forward) forward_end[cell(action.stage, action.micro_batch)] = result.end[w];
        if (makes_input_gradients(action.op))
          gradient_end[cell(action.stage, action.micro_batch)] = result.end[w];
        const int32_t next = action.stage.value + (forward ? 1 : -1);
        if (action.op != Op::BackwardWeight && next >= 0 && next < shape.num_stages()) {
          const size_t other = table.worker_of(StageId{next}, action.micro_batch).index();
          if (other != w) awake.push_back(other);
        }
      }
    }
  }
  for (size_t w = 0; w < count; ++w) {
    if (position[w] < schedule.workers[w].size()) return std::nullopt;
  }
  return result;
}

}  // namespace penstock::schedule::testing
