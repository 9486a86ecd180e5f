#include "penstock/simulate/memory.h"

#include <algorithm>

#include "penstock/util/arithmetic.h"

namespace penstock::simulate::detail {

using schedule::Action;
using schedule::Op;

namespace {

int64_t scale_bytes(int64_t bytes, double factor) {
  const double scaled = static_cast<double>(bytes) * factor;
  return scaled >= 9.2e18 ? INT64_MAX : static_cast<int64_t>(scaled);
}

// What a stage occupies on a worker for the whole run: its first weight version and, if it trains, gradient and optimiser state.
int64_t resident_bytes(const StageCost& stage, bool trains, double optimizer_state_per_weight) {
  if (!trains) return stage.weight_bytes;
  return saturating_add(saturating_add(stage.weight_bytes, stage.weight_bytes),
                        scale_bytes(stage.weight_bytes, optimizer_state_per_weight));
}

int64_t change_bytes(const Action& action, const StageCost& stage, bool trains) {
  switch (action.op) {
    case Op::Forward:
      return trains ? stage.stash_bytes : 0;
    case Op::Backward:
      return -stage.stash_bytes;
    case Op::Step:
      return stage.weight_bytes;
    case Op::FreeWeights:
      return -stage.weight_bytes;
    default:
      return 0;
  }
}

int64_t worker_peak_bytes(const std::vector<Action>& actions, const Costs& costs) {
  const bool trains = std::any_of(actions.begin(), actions.end(), [](const Action& action) { return action.op == Op::Backward; });
  std::vector<bool> present(costs.stages.size());
  int64_t now = 0;
  for (const Action& action : actions) {
    if (present[action.stage.index()]) continue;
    present[action.stage.index()] = true;
    now = saturating_add(now, resident_bytes(costs.stages[action.stage.index()], trains, costs.optimizer_state_per_weight));
  }
  int64_t peak = now;
  // A FREE right before the STEP that replaces its version makes the step work in place: minus one, plus one, no higher peak.
  for (const Action& action : actions) {
    if (now == INT64_MAX) return INT64_MAX;
    now = saturating_add(now, change_bytes(action, costs.stages[action.stage.index()], trains));
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace

std::vector<int64_t> peak_memory_bytes(const schedule::Schedule& schedule, const Costs& costs) {
  std::vector<int64_t> peaks;
  peaks.reserve(schedule.workers.size());
  for (const auto& actions : schedule.workers) peaks.push_back(worker_peak_bytes(actions, costs));
  return peaks;
}

}  // namespace penstock::simulate::detail
