#include "penstock/schedule/weight_versions.h"

#include <algorithm>

#include "penstock/util/check.h"

namespace penstock::schedule {

VersionAssigner::VersionAssigner(const ScheduleShape& shape, bool forward_only) : policy_(shape.policy), forward_only_(forward_only) {
  if (policy_ == WeightPolicy::Stash || policy_ == WeightPolicy::VerticalSync) used_.resize(static_cast<size_t>(shape.micro_batches));
}

WeightVersion VersionAssigner::version_of(const Action& action, int64_t steps_before) {
  if (forward_only_) return WeightVersion{0};
  switch (policy_) {
    case WeightPolicy::Flush:
      return WeightVersion{action.mini_batch.value};
    case WeightPolicy::TwoBuffered:
      return WeightVersion{std::max<int64_t>(action.mini_batch.value - 1, 0)};
    case WeightPolicy::Latest:
      return WeightVersion{steps_before};
    case WeightPolicy::Stash:
    case WeightPolicy::VerticalSync:
      break;
  }
  int64_t& used = used_[action.micro_batch.index()];
  if (action.op == Op::Forward && (policy_ == WeightPolicy::Stash || at_input_stage_)) used = steps_before;
  return WeightVersion{used};
}

void VersionAssigner::assign(std::vector<Action>& actions) {
  int64_t steps = 0;
  for (Action& action : actions) {
    at_input_stage_ = action.stage.value == 0;
    if (is_compute(action.op)) action.version = version_of(action, steps);
    if (action.op == Op::Step) ++steps;
  }
}

std::vector<FreePlace> place_frees(const std::vector<Action>& actions, int64_t num_steps) {
  // Where each version is used last, and where the step stands that replaces it. The version after the last step is never freed.
  std::vector<int64_t> last_use(static_cast<size_t>(num_steps), -1);
  std::vector<int64_t> replaced_at(static_cast<size_t>(num_steps), -1);
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.version.value < 0 || action.version.value >= num_steps) continue;
    if (is_compute(action.op)) last_use[action.version.index()] = static_cast<int64_t>(i);
    if (action.op == Op::Step) replaced_at[action.version.index()] = static_cast<int64_t>(i);
  }

  std::vector<FreePlace> places;
  places.reserve(last_use.size());
  for (size_t v = 0; v < last_use.size(); ++v) {
    PENSTOCK_DCHECK(replaced_at[v] >= 0, v);
    const bool in_place = last_use[v] < replaced_at[v];
    const Action& neighbour = actions[static_cast<size_t>(in_place ? replaced_at[v] : last_use[v])];
    places.push_back({.after = in_place ? replaced_at[v] - 1 : last_use[v],
                      .action = {.op = Op::FreeWeights,
                                 .stage = neighbour.stage,
                                 .micro_batch = {},
                                 .mini_batch = neighbour.mini_batch,
                                 .peer = neighbour.stage,
                                 .version = WeightVersion{static_cast<int64_t>(v)}}});
  }
  // Two versions can end at one place: the older by its last use, the newer by the step right behind it. In-place frees must stand next to
  // their step, hence last; the stable sort keeps the order of versions.
  std::stable_sort(places.begin(), places.end(), [](const FreePlace& a, const FreePlace& b) { return a.after < b.after; });
  return places;
}

}  // namespace penstock::schedule
