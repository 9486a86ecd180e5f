// Lowering: compute actions -> the full lists. Steps and syncs first, then versions, then messages
// and frees while the final list is written.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/neighbours.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/step_placement.h"
#include "penstock/schedule/weight_versions.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {
namespace {

/// The workers by their first stage.
std::vector<WorkerId> by_stage(const WorkerTable& table) {
  std::vector<WorkerId> workers;
  workers.reserve(static_cast<size_t>(table.num_workers()));
  for (int32_t w = 0; w < table.num_workers(); ++w) workers.push_back(WorkerId{w});
  std::stable_sort(workers.begin(), workers.end(), [&](WorkerId a, WorkerId b) {
    return table.first_stage_of(a) < table.first_stage_of(b);
  });
  return workers;
}

/// Refuses lists that the shape does not describe; returns whether no backward occurs.
bool check_compute(const Schedule& compute, const WorkerTable& table) {
  const ScheduleShape& shape = compute.shape;
  if (compute.lowered) throw ConfigError("the schedule is lowered already");
  if (compute.workers.size() != static_cast<size_t>(table.num_workers())) {
    throw ConfigError(fmt::format("the schedule has {} workers, its shape {}",
                                  compute.workers.size(), table.num_workers()));
  }
  bool forward_only = true;
  for (size_t w = 0; w < compute.workers.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    const std::vector<Action>& list = compute.workers[w];
    for (size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      const bool fits = is_compute(action.op) && table.replica_on(worker, action.stage) >= 0 &&
                        action.micro_batch.value >= 0 &&
                        action.micro_batch.value < shape.micro_batches &&
                        action.mini_batch == shape.mini_batch_of(action.micro_batch);
      if (!fits) {
        const StageId stage = table.first_stage_of(worker);
        throw ConfigError(fmt::format("worker {} of stage {} cannot hold {} before lowering", w,
                                      stage.value, to_text(action)));
      }
      if (action.with_next && (i + 1 == list.size() || !can_overlap(action, list[i + 1]))) {
        throw ConfigError(fmt::format(
            "worker {}: {} runs together with the next action: expected F before a B or "
            "I of another micro-batch, found {}",
            w, to_text(action),
            i + 1 == list.size() ? "the end of the list" : to_text(list[i + 1])));
      }
      forward_only = forward_only && (action.op == Op::Forward);
    }
  }
  return forward_only;
}

void check_size(const Schedule& compute, const Neighbours& neighbours, bool forward_only) {
  const ScheduleShape& shape = compute.shape;
  int64_t links = 0;
  for (const auto& sources : neighbours.sources) links += static_cast<int64_t>(sources.size());
  const int64_t messages = saturating_mul(links * (forward_only ? 2 : 4), shape.micro_batches);
  // STEP and FREE everywhere, SYNC on replicated stages, NORM on every worker
  int64_t per_step = 0;
  int64_t added = 0;  // R, OFFLOAD and LOAD
  if (!forward_only) {
    for (const int64_t count : shape.replicas) per_step += count * (count > 1 ? 3 : 2);
    if (shape.global_norm) per_step += shape.num_workers();
    const auto recompute = std::count(shape.recompute.begin(), shape.recompute.end(), true);
    const auto offload = std::count(shape.offload.begin(), shape.offload.end(), true);
    added = saturating_mul(recompute + 2 * offload, shape.micro_batches);
  }
  const int64_t steps = saturating_mul(per_step, shape.num_mini_batches());
  const int64_t total =
      saturating_add(saturating_add(compute.num_actions(), added), saturating_add(messages, steps));
  if (total > kMaxActions) {
    throw ConfigError(
        fmt::format("lowered, the schedule would hold {} actions, at most {} are supported; use "
                    "fewer or larger mini-batches",
                    total, kMaxActions));
  }
}

/// Writes one worker's final list.
class ListWriter {
 public:
  ListWriter(const Neighbours& neighbours, const WorkerTable& table, WorkerId worker)
      : neighbours_(neighbours), table_(table), worker_(worker) {}

  std::vector<Action> complete(const std::vector<Action>& actions, int64_t num_steps) {
    const std::vector<FreePlace> frees = place_frees(actions, table_.held_by(worker_), num_steps);
    size_t size = actions.size() + frees.size();
    for (const Action& action : actions) {
      if (!is_compute(action.op)) continue;
      size += neighbours_.sources[action.stage.index()].size() +
              neighbours_.targets[action.stage.index()].size();
    }
    list_.reserve(size);
    size_t next_free = 0;
    const auto append_frees = [&](int64_t after) {
      for (; next_free < frees.size() && frees[next_free].after <= after; ++next_free)
        list_.push_back(frees[next_free].action);
    };
    append_frees(-1);
    for (size_t i = 0; i < actions.size(); ++i) {
      const size_t end = i + (actions[i].with_next ? 2 : 1);
      append_with_messages(std::span(actions).subspan(i, end - i));
      i = end - 1;
      append_frees(static_cast<int64_t>(i));
    }
    return std::move(list_);
  }

 private:
  /// One action, or two that run together.
  void append_with_messages(std::span<const Action> together) {
    for (const Action& action : together) {
      const size_t s = action.stage.index();
      if (action.op == Op::Forward)
        append_messages(Op::RecvForward, action, neighbours_.sources[s]);
      if (makes_input_gradients(action.op))
        append_messages(Op::RecvBackward, action, neighbours_.targets[s]);
    }
    list_.insert(list_.end(), together.begin(), together.end());
    for (const Action& action : together) {
      const size_t s = action.stage.index();
      if (action.op == Op::Forward)
        append_messages(Op::SendForward, action, neighbours_.targets[s]);
      if (makes_input_gradients(action.op))
        append_messages(Op::SendBackward, action, neighbours_.sources[s]);
    }
  }

  void append_messages(Op op, const Action& compute, const std::vector<StageId>& peers) {
    for (const StageId peer : peers) {
      if (table_.worker_of(peer, compute.micro_batch) == worker_) continue;
      list_.push_back({.op = op,
                       .stage = compute.stage,
                       .micro_batch = compute.micro_batch,
                       .mini_batch = compute.mini_batch,
                       .peer = peer});
    }
  }

  const Neighbours& neighbours_;
  const WorkerTable& table_;
  WorkerId worker_;
  std::vector<Action> list_;
};

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
  full.workers.resize(compute.workers.size());
  for (const WorkerId worker : by_stage(table)) {
    const std::vector<Action>& list = compute.workers[worker.index()];
    std::vector<Action> actions =
        forward_only ? list : place_steps(list, shape, table, worker, depths);
    versions.assign(actions);
    full.workers[worker.index()] =
        ListWriter(neighbours, table, worker).complete(actions, num_steps);
  }
  return full;
}

}  // namespace penstock::schedule
