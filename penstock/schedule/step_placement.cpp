#include "penstock/schedule/step_placement.h"

#include <algorithm>

namespace penstock::schedule {
namespace {

/// Position before which the steps of mini-batches stand that end before the worker's first backward.
size_t first_step_position(const std::vector<Action>& compute, WeightPolicy policy, int64_t depth) {
  if (policy == WeightPolicy::Flush) return 0;
  const auto first_backward = std::find_if(compute.begin(), compute.end(), [](const Action& a) { return a.op == Op::Backward; });
  const auto warmup = static_cast<size_t>(first_backward - compute.begin());
  return static_cast<int64_t>(warmup) >= depth && warmup > 0 ? warmup - 1 : warmup;
}

}  // namespace

std::vector<Action> place_steps(const std::vector<Action>& compute, const ScheduleShape& shape, StageId stage, int64_t depth, bool sync) {
  const int64_t steps = shape.num_mini_batches();
  // next_mini_batch[i]: the least mini-batch among the backwards at and after position i; all steps below it may stand before i.
  std::vector<int64_t> next_mini_batch(compute.size() + 1, steps);
  for (size_t i = compute.size(); i-- > 0;) {
    next_mini_batch[i] = next_mini_batch[i + 1];
    if (compute[i].op == Op::Backward) next_mini_batch[i] = std::min(next_mini_batch[i], compute[i].mini_batch.value);
  }

  std::vector<Action> placed;
  placed.reserve(compute.size() + static_cast<size_t>(steps) * (sync ? 2 : 1));
  int64_t next_step = 0;
  const auto place_until = [&](int64_t end) {
    for (; next_step < end; ++next_step) {
      const MiniBatchId t{next_step};
      if (sync) placed.push_back({.op = Op::SyncGradients, .stage = stage, .micro_batch = {}, .mini_batch = t, .peer = stage});
      placed.push_back(
          {.op = Op::Step, .stage = stage, .micro_batch = {}, .mini_batch = t, .peer = stage, .version = WeightVersion{next_step}});
    }
  };
  const size_t first_position = first_step_position(compute, shape.policy, depth);
  for (size_t i = 0; i < compute.size(); ++i) {
    if (i == first_position) place_until(next_mini_batch[0]);
    placed.push_back(compute[i]);
    if (compute[i].op == Op::Backward) place_until(next_mini_batch[i + 1]);
  }
  place_until(steps);
  return placed;
}

}  // namespace penstock::schedule
