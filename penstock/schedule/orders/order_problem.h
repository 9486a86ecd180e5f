// One mini-batch as a scheduling problem: which worker runs what, how long it takes, and how much a
// worker may keep. An order is a list of steps per worker; order_clock.h says how long it takes.
//
//   OrderProblem problem{.num_workers = 2, .num_micro_batches = 4, .stages = {{.workers = {0}},
//       {.workers = {1}}}, .most_kept = {2, 2}};
//   Order order = search_order(problem);  // search_order.h
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/action.h"

namespace penstock::schedule {

struct OrderProblem {
  struct Stage {
    std::vector<int32_t> workers =
        {};  ///< micro-batch b runs on workers[(first_turn + b) mod size]
    int64_t first_turn = 0;
    int64_t forward = 1;  ///< times in any unit, each >= 0
    int64_t input = 1;    ///< of I, with the recomputation of the stage
    int64_t again = 0;    ///< of that: the recomputation, which needs no gradient
    int64_t weight = 1;   ///< of W
    int64_t message = 0;  ///< to the next stage and back, where it is on another worker
    /// How long of that it occupies each link on its way, per level of links (link_units); empty:
    /// it shares none.
    std::vector<int64_t> busy = {};
    /// After each mini-batch on each of its workers, once all of them have come so far: the sums of
    /// gradients and the step.
    int64_t finish = 0;

    bool operator==(const Stage&) const = default;
    int32_t worker_of(int64_t micro_batch) const {
      return workers[static_cast<size_t>((first_turn + micro_batch) %
                                         static_cast<int64_t>(workers.size()))];
    }
  };

  int32_t num_workers = 0;
  int32_t num_micro_batches = 0;
  std::vector<Stage> stages = {};
  /// Per worker: micro-batches, summed over its stages, that it keeps from F to W at most; at least
  /// as many as the stages that it holds.
  std::vector<int64_t> most_kept = {};
  /// Per level of links, innermost first, and worker: its unit below the level, from 0. Empty:
  /// messages share no links.
  std::vector<std::vector<int32_t>> link_units = {};
  /// How often the mini-batch comes, one directly after the other.
  int repetitions = 1;
  /// Only orders that run with one message per channel (order_credits.h).
  bool one_credit = false;

  int32_t num_stages() const { return static_cast<int32_t>(stages.size()); }
  bool operator==(const OrderProblem&) const = default;
};

/// F, I or W of one micro-batch in one stage.
struct OrderStep {
  Op op = Op::Forward;  ///< Forward, BackwardInput or BackwardWeight
  int32_t stage = 0;
  int32_t micro_batch = 0;  ///< from 0, within the mini-batch
  bool operator==(const OrderStep&) const = default;
};

/// The list of each worker.
using Order = std::vector<std::vector<OrderStep>>;

/// The compute lists of one mini-batch; B is I, and W directly after it.
Order order_of(const std::vector<std::vector<Action>>& lists);

}  // namespace penstock::schedule
