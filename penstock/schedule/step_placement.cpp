#include "penstock/schedule/step_placement.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "penstock/plan/weight_rules.h"

namespace penstock::schedule {
namespace {

/// The steps of mini-batches that end before the worker's first backward are placed before this
/// position.
size_t first_step_position(const std::vector<Action>& compute, WeightPolicy policy, int64_t depth) {
  if (traits(policy).drains) return 0;
  const auto first_backward = std::find_if(
      compute.begin(), compute.end(), [](const Action& a) { return makes_input_gradients(a.op); });
  const auto warmup = static_cast<size_t>(first_backward - compute.begin());
  return static_cast<int64_t>(warmup) >= depth && warmup > 0 ? warmup - 1 : warmup;
}

Action of_mini_batch(Op op, StageId stage, int64_t mini_batch) {
  return {.op = op,
          .stage = stage,
          .micro_batch = {},
          .mini_batch = MiniBatchId{mini_batch},
          .peer = stage};
}

/// Adds R where a stage recomputes and the list does not contain R already.
class RecomputePlacer {
 public:
  RecomputePlacer(const std::vector<Action>& compute, const ScheduleShape& shape) : shape_(shape) {
    if (shape.recompute.empty()) return;
    for (const Action& action : compute) {
      if (action.op == Op::Recompute) given_.insert(key(action));
    }
  }

  void place_before(const Action& action, std::vector<Action>& placed) const {
    if (!makes_input_gradients(action.op) || !shape_.recomputes(action.stage) ||
        given_.contains(key(action)))
      return;
    placed.push_back(action);
    placed.back().op = Op::Recompute;
  }

 private:
  uint64_t key(const Action& action) const {
    return action.stage.index() * static_cast<uint64_t>(shape_.micro_batches) +
           action.micro_batch.index();
  }

  const ScheduleShape& shape_;
  std::unordered_set<uint64_t> given_;
};

/// Adds OFFLOAD and LOAD of stages whose activations move to the host.
class MovePlacer {
 public:
  MovePlacer(const std::vector<Action>& compute, const ScheduleShape& shape) {
    if (most_in_flight(compute, shape) <= kMostWithOffload) return;
    before_.resize(compute.size() + 1);
    std::unordered_map<uint64_t, size_t> forwards;
    for (size_t i = 0; i < compute.size(); ++i) {
      const Action& action = compute[i];
      if (!shape.offloads(action.stage)) continue;
      const uint64_t key = action.stage.index() * static_cast<uint64_t>(shape.micro_batches) +
                           action.micro_batch.index();
      if (action.op == Op::Forward) forwards[key] = i;
      if (!makes_input_gradients(action.op)) continue;
      const auto forward = forwards.find(key);
      if (forward != forwards.end()) place(compute, forward->second, i);
    }
  }

  /// The moves in front of the action at `position`.
  void place_before(size_t position, std::vector<Action>& placed) const {
    if (position >= before_.size()) return;
    placed.insert(placed.end(), before_[position].begin(), before_[position].end());
  }

 private:
  /// Micro-batches of stages that offload.
  static int64_t most_in_flight(const std::vector<Action>& compute, const ScheduleShape& shape) {
    int64_t now = 0;
    int64_t most = 0;
    for (const Action& action : compute) {
      if (!shape.offloads(action.stage)) continue;
      if (action.op == Op::Forward) most = std::max(most, ++now);
      if (makes_weight_gradients(action.op)) --now;
    }
    return most;
  }

  static bool runs_with_last(const std::vector<Action>& compute, size_t i) {
    return i > 0 && compute[i - 1].with_next;
  }
  static size_t first_of(const std::vector<Action>& compute, size_t i) {
    return runs_with_last(compute, i) ? i - 1 : i;
  }

  /// OFFLOAD behind the forward, LOAD so early that another action runs while it is under way, if
  /// one more runs between the two.
  void place(const std::vector<Action>& compute, size_t forward, size_t backward) {
    const size_t behind = forward + (compute[forward].with_next ? 2 : 1);
    const size_t needed = first_of(compute, backward);
    if (needed <= behind) return;
    const size_t load = first_of(compute, needed - 1);
    if (load <= behind) return;
    // In front of a LOAD at the same place, so that memory is freed first.
    before_[behind].insert(before_[behind].begin(), move_of(compute[forward], Op::Offload));
    before_[load].push_back(move_of(compute[forward], Op::Load));
  }

  static Action move_of(const Action& forward, Op op) {
    Action move = forward;
    move.op = op;
    move.with_next = false;
    move.version = WeightVersion{-1};
    return move;
  }

  std::vector<std::vector<Action>> before_;  ///< by position in the list; empty: none anywhere
};

}  // namespace

std::vector<Action> place_steps(const std::vector<Action>& compute, const ScheduleShape& shape,
                                const WorkerTable& table, WorkerId worker,
                                const std::vector<int64_t>& depths) {
  const int64_t steps = shape.num_mini_batches();
  const auto held = table.held_by(worker);
  // next_mini_batch[i]: the lowest mini-batch among the backwards at and after position i; all
  // steps below it may come before i.
  std::vector<int64_t> next_mini_batch(compute.size() + 1, steps);
  for (size_t i = compute.size(); i-- > 0;) {
    next_mini_batch[i] = next_mini_batch[i + 1];
    const bool is_backward =
        makes_input_gradients(compute[i].op) || makes_weight_gradients(compute[i].op);
    if (is_backward) next_mini_batch[i] = std::min(next_mini_batch[i], compute[i].mini_batch.value);
  }

  const RecomputePlacer recompute(compute, shape);
  const MovePlacer moves(compute, shape);
  std::vector<Action> placed;
  placed.reserve(compute.size() + static_cast<size_t>(steps) * held.size());
  int64_t next_step = 0;
  const auto place_until = [&](int64_t end) {
    for (; next_step < end; ++next_step) {
      for (const auto& unit : held) {
        if (table.replicas(unit.stage) > 1)
          placed.push_back(of_mini_batch(Op::SyncGradients, unit.stage, next_step));
      }
      if (shape.global_norm)
        placed.push_back(of_mini_batch(Op::NormGradients, held.front().stage, next_step));
      for (const auto& unit : held) {
        placed.push_back(of_mini_batch(Op::Step, unit.stage, next_step));
        placed.back().version = WeightVersion{next_step};
      }
    }
  };
  size_t first_position =
      first_step_position(compute, shape.policy, depths[held.front().stage.index()]);
  // Nothing comes between two actions that run together.
  const auto runs_with_last = [&](size_t i) { return i > 0 && compute[i - 1].with_next; };
  if (runs_with_last(first_position)) --first_position;
  for (size_t i = 0; i < compute.size(); ++i) {
    if (i == first_position) place_until(next_mini_batch[0]);
    moves.place_before(i, placed);
    if (!runs_with_last(i)) recompute.place_before(compute[i], placed);
    if (compute[i].with_next) recompute.place_before(compute[i + 1], placed);
    placed.push_back(compute[i]);
    if (makes_weight_gradients(compute[i].op)) place_until(next_mini_batch[i + 1]);
  }
  place_until(steps);
  return placed;
}

}  // namespace penstock::schedule
