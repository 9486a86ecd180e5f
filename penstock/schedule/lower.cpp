// Lowering: compute actions -> the full lists. Steps and syncs first, then versions, then messages and frees while the final list is
// written.
#include <fmt/format.h>

#include "penstock/schedule/neighbours.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/step_placement.h"
#include "penstock/schedule/text_format.h"
#include "penstock/schedule/weight_versions.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

/// Refuses lists that the shape does not describe; returns whether no backward occurs.
bool check_compute(const Schedule& compute, const WorkerTable& table) {
  const ScheduleShape& shape = compute.shape;
  if (compute.lowered) throw ConfigError("the schedule is lowered already");
  if (compute.workers.size() != static_cast<size_t>(table.num_workers())) {
    throw ConfigError(fmt::format("the schedule has {} workers, its shape {}", compute.workers.size(), table.num_workers()));
  }
  bool forward_only = true;
  for (size_t w = 0; w < compute.workers.size(); ++w) {
    const StageId stage = table.stage_of(WorkerId{static_cast<int32_t>(w)});
    for (const Action& action : compute.workers[w]) {
      const bool fits = is_compute(action.op) && action.stage == stage && action.micro_batch.value >= 0 &&
                        action.micro_batch.value < shape.micro_batches && action.mini_batch == shape.mini_batch_of(action.micro_batch);
      if (!fits) throw ConfigError(fmt::format("worker {} of stage {} cannot hold {} before lowering", w, stage.value, to_text(action)));
      forward_only = forward_only && action.op != Op::Backward;
    }
  }
  return forward_only;
}

void check_size(const Schedule& compute, const Neighbours& neighbours, bool forward_only) {
  int64_t links = 0;
  for (const auto& sources : neighbours.sources) links += static_cast<int64_t>(sources.size());
  const int64_t messages = saturating_mul(links * (forward_only ? 2 : 4), compute.shape.micro_batches);
  int64_t steps = 0;  // STEP and FREE everywhere, SYNC on replicated stages
  if (!forward_only) {
    for (const int64_t count : compute.shape.replicas) steps += count * (count > 1 ? 3 : 2);
  }
  steps = saturating_mul(steps, compute.shape.num_mini_batches());
  const int64_t total = saturating_add(compute.num_actions(), saturating_add(messages, steps));
  if (total > kMaxActions) {
    throw ConfigError(fmt::format("lowered, the schedule would hold {} actions, at most {} are supported; use fewer or larger mini-batches",
                                  total, kMaxActions));
  }
}

void append_messages(std::vector<Action>& list, Op op, const Action& compute, const std::vector<StageId>& peers) {
  for (const StageId peer : peers) {
    list.push_back({.op = op, .stage = compute.stage, .micro_batch = compute.micro_batch, .mini_batch = compute.mini_batch, .peer = peer});
  }
}

void append_with_messages(std::vector<Action>& list, const Action& action, const Neighbours& neighbours) {
  const auto& sources = neighbours.sources[action.stage.index()];
  const auto& targets = neighbours.targets[action.stage.index()];
  if (action.op == Op::Forward) append_messages(list, Op::RecvForward, action, sources);
  if (action.op == Op::Backward) append_messages(list, Op::RecvBackward, action, targets);
  list.push_back(action);
  if (action.op == Op::Forward) append_messages(list, Op::SendForward, action, targets);
  if (action.op == Op::Backward) append_messages(list, Op::SendBackward, action, sources);
}

std::vector<Action> complete_list(const std::vector<Action>& actions, const Neighbours& neighbours, int64_t num_steps) {
  const std::vector<FreePlace> frees = place_frees(actions, num_steps);
  size_t size = actions.size() + frees.size();
  for (const Action& action : actions) {
    if (!is_compute(action.op)) continue;
    size += neighbours.sources[action.stage.index()].size() + neighbours.targets[action.stage.index()].size();
  }
  std::vector<Action> list;
  list.reserve(size);
  size_t next_free = 0;
  const auto append_frees = [&](int64_t after) {
    for (; next_free < frees.size() && frees[next_free].after <= after; ++next_free) list.push_back(frees[next_free].action);
  };
  append_frees(-1);
  for (size_t i = 0; i < actions.size(); ++i) {
    append_with_messages(list, actions[i], neighbours);
    append_frees(static_cast<int64_t>(i));
  }
  return list;
}

}  // namespace

Schedule lower(const Schedule& compute, const std::vector<StageLink>& links) {
  validate(compute.shape);
  const ScheduleShape& shape = compute.shape;
  const WorkerTable table(shape);
  const Neighbours neighbours = neighbours_of(links, shape.num_stages());
  const bool forward_only = check_compute(compute, table);
  check_size(compute, neighbours, forward_only);

  const std::vector<int64_t> depths = warmup_depths(shape);
  const int64_t num_steps = forward_only ? 0 : shape.num_mini_batches();
  VersionAssigner versions(shape, forward_only);
  Schedule full{.kind = compute.kind, .shape = shape, .lowered = true, .workers = {}};
  full.workers.reserve(compute.workers.size());
  for (size_t w = 0; w < compute.workers.size(); ++w) {
    const StageId stage = table.stage_of(WorkerId{static_cast<int32_t>(w)});
    std::vector<Action> actions =
        forward_only ? compute.workers[w] : place_steps(compute.workers[w], shape, stage, depths[stage.index()], table.replicas(stage) > 1);
    versions.assign(actions);
    full.workers.push_back(complete_list(actions, neighbours, num_steps));
  }
  return full;
}

}  // namespace penstock::schedule
