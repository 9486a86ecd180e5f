#include "penstock/schedule/weight_versions.h"

#include <algorithm>
#include <tuple>

#include "penstock/util/check.h"

namespace penstock::schedule {

using plan::VersionNote;

VersionAssigner::VersionAssigner(const ScheduleShape& shape, bool forward_only)
    : rule_(traits(shape.policy)),
      compensation_(forward_only ? Compensation::None : shape.compensation),
      forward_only_(forward_only) {
  if (traits(compensation_).ahead != nullptr)
    forward_versions_.resize(static_cast<size_t>(shape.micro_batches));
  if (rule_.note != VersionNote::None) noted_.resize(static_cast<size_t>(shape.micro_batches));
}

WeightVersion VersionAssigner::version_of(const Action& action) {
  if (forward_only_) return WeightVersion{0};
  plan::VersionUse use{.mini_batch = action.mini_batch.value, .steps = steps_before_};
  if (rule_.note != VersionNote::None) {
    int64_t& noted = noted_[action.micro_batch.index()];
    const bool notes = rule_.note == VersionNote::OfStage || action.stage.value == 0;
    if (action.op == Op::Forward && notes) noted = steps_before_;
    use.noted = noted;
  }
  return WeightVersion{rule_.version(use)};
}

int32_t VersionAssigner::ahead_of(const Action& action) {
  if (forward_versions_.empty()) return 0;
  int64_t& forward = forward_versions_[action.micro_batch.index()];
  if (action.op == Op::Forward) forward = action.version.value;
  return static_cast<int32_t>(plan::steps_ahead(
      compensation_, {.mini_batch = action.mini_batch.value,
                      .version = action.version.value,
                      .forward_version = forward,
                      .is_backward = action.op != Op::Forward && action.op != Op::Recompute}));
}

void VersionAssigner::assign(std::vector<Action>& actions) {
  steps_before_ = 0;
  for (Action& action : actions) {
    if (is_compute(action.op)) {
      action.version = version_of(action);
      action.ahead = ahead_of(action);
    }
    if (action.op == Op::Step) ++steps_before_;
  }
}

std::vector<FreePlace> place_frees(const std::vector<Action>& actions,
                                   std::span<const WorkerTable::Held> held, int64_t num_steps) {
  // Where each version of each stage is used last, and where the step is that replaces it. The
  // version after the last step is never freed.
  struct Ends {
    int64_t last_use = -1;
    int64_t replaced_at = -1;
  };
  std::vector<Ends> ends(held.size() * static_cast<size_t>(num_steps));
  const auto ends_of = [&](const Action& action) -> Ends& {
    const auto unit =
        std::lower_bound(held.begin(), held.end(), action.stage,
                         [](const auto& h, StageId stage) { return h.stage < stage; });
    return ends[static_cast<size_t>(unit - held.begin()) * static_cast<size_t>(num_steps) +
                action.version.index()];
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.version.value < 0 || action.version.value >= num_steps) continue;
    if (is_compute(action.op)) ends_of(action).last_use = static_cast<int64_t>(i);
    if (action.op == Op::Step) ends_of(action).replaced_at = static_cast<int64_t>(i);
  }

  std::vector<FreePlace> places;
  places.reserve(ends.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto [last_use, replaced_at] = ends[i];
    PENSTOCK_DCHECK(replaced_at >= 0, i);
    const bool in_place = last_use < replaced_at;
    const Action& neighbour = actions[static_cast<size_t>(in_place ? replaced_at : last_use)];
    places.push_back({.after = in_place ? replaced_at - 1 : last_use,
                      .in_place = in_place,
                      .action = {.op = Op::FreeWeights,
                                 .stage = neighbour.stage,
                                 .micro_batch = {},
                                 .mini_batch = neighbour.mini_batch,
                                 .peer = neighbour.stage,
                                 .version = WeightVersion{static_cast<int64_t>(i) % num_steps}}});
  }
  // Two versions can end at one place: the older at its last use, the newer because the step
  // directly follows. An in-place free must be next to its step, so it comes last.
  std::stable_sort(places.begin(), places.end(), [](const FreePlace& a, const FreePlace& b) {
    return std::tie(a.after, a.in_place) < std::tie(b.after, b.in_place);
  });
  return places;
}

}  // namespace penstock::schedule
