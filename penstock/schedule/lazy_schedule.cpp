#include "penstock/schedule/lazy_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {
namespace {

using plan::InFlight;

// Far more than anybody would wait for, and far below the numbers whose sums would overflow.
constexpr int64_t kMaxLazyActions = 1'000'000'000'000;
constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

std::vector<int64_t> depths_of(Strategy strategy, const ScheduleShape& shape) {
  const InFlight in_flight = traits(strategy).in_flight;
  if (in_flight == InFlight::Warmup) return warmup_depths(shape);
  return std::vector<int64_t>(shape.replicas.size(), in_flight == InFlight::All ? kUnbounded : 1);
}

void check_makes(Strategy strategy, const ScheduleShape& shape) {
  check_runs(strategy, shape, kMaxLazyActions);
  if (LazySchedule::can_make(strategy, shape)) return;
  throw ConfigError(fmt::format(
      "schedule {} {} cannot be made action by action while it runs: generate it and simulate it "
      "in memory",
      to_string(strategy),
      traits(strategy).in_flight == InFlight::NoRule ? "has no simple pattern and"
      : !shape.offload.empty() ? "with activations that move to the memory of the host"
                               : "with several stages on one worker"));
}

}  // namespace

bool LazySchedule::can_make(Strategy strategy, const ScheduleShape& shape) {
  const bool moves =
      std::find(shape.offload.begin(), shape.offload.end(), true) != shape.offload.end();
  return traits(strategy).in_flight != InFlight::NoRule && !moves &&
         (shape.worker_of_replica.empty() ||
          static_cast<size_t>(shape.num_workers()) == shape.worker_of_replica.size());
}

LazySchedule::LazySchedule(Strategy strategy, const ScheduleShape& shape,
                           const std::vector<StageLink>& links)
    : strategy_(strategy),
      shape_((check_makes(strategy, shape), with_own_slack(strategy, shape))),
      table_(shape),
      neighbours_(neighbours_of(links, shape.num_stages())),
      by_mini_batch_(traits(strategy).flushes() && traits(strategy).trains),
      num_steps_(traits(strategy).trains ? shape.num_mini_batches() : 0) {
  const std::vector<int64_t> depths = depths_of(strategy, shape_);
  // 1F1B runs the forward of b just before the backward of b - (depth - 1) * replicas, so that many
  // micro-batches lie between the steps that have been made and the mini-batch of b.
  const auto in_flight = [&](size_t s) { return saturating_mul(depths[s] - 1, shape.replicas[s]); };
  for (size_t s = 0; s < shape.replicas.size(); ++s) {
    StagePattern pattern{.depth = depths[s],
                         .delays = {},
                         .replicas = shape.replicas[s],
                         .recomputes = shape.recomputes(StageId{static_cast<int32_t>(s)})};
    pattern.first_source = static_cast<uint32_t>(peers_.size());
    peers_.insert(peers_.end(), neighbours_.sources[s].begin(), neighbours_.sources[s].end());
    pattern.first_target = static_cast<uint32_t>(peers_.size());
    peers_.insert(peers_.end(), neighbours_.targets[s].begin(), neighbours_.targets[s].end());
    pattern.end_target = static_cast<uint32_t>(peers_.size());
    pattern.delays = {kUnbounded, kUnbounded};
    if (traits(strategy).trains) {
      pattern.delays = traits(shape.policy)
                           .delays({.step = shape.accumulate,
                                    .ahead = in_flight(s),
                                    .ahead_at_input = in_flight(0)});
    }
    patterns_.push_back(pattern);
  }
  most_in_flight_ = std::min(*std::max_element(depths.begin(), depths.end()), shape.micro_batches);
  if (by_mini_batch_) most_in_flight_ = std::min(most_in_flight_, shape.accumulate);
}

LazySchedule::Cursor LazySchedule::cursor(WorkerId worker) const {
  PENSTOCK_CHECK(worker.value >= 0 && worker.value < table_.num_workers(), worker);
  Cursor cursor;
  const StageId stage = table_.first_stage_of(worker);
  const int64_t replicas = shape_.replicas[stage.index()];
  cursor.stage = stage.value;
  cursor.replica = table_.replica_on(worker, stage);
  cursor.count = shape_.micro_batches <= cursor.replica
                     ? 0
                     : ceil_div(shape_.micro_batches - cursor.replica, replicas);
  cursor.segment_end = segment_end(cursor);
  if (!traits(shape_.policy).drains) {
    const int64_t depth = patterns_[stage.index()].depth;
    cursor.first_position = cursor.count >= depth ? depth - 1 : cursor.count;
  }
  return cursor;
}

int64_t LazySchedule::segment_end(const Cursor& cursor) const {
  if (!by_mini_batch_ || cursor.next_forward == cursor.count) return cursor.count;
  const int64_t next_mini_batch = mini_batch(micro_batch(cursor, cursor.next_forward)) + 1;
  const int64_t end =
      std::min(saturating_mul(next_mini_batch, shape_.accumulate), shape_.micro_batches);
  return ceil_div(end - cursor.replica, pattern(cursor).replicas);
}

// Sets the next F or B; false when there is none.
bool LazySchedule::choose_compute(Cursor& cursor) const {
  if (cursor.next_backward == cursor.segment_end) {
    if (cursor.segment_end == cursor.count) return false;
    cursor.segment_end = segment_end(cursor);
  }
  const StagePattern& stage = pattern(cursor);
  const bool forward = cursor.next_forward < cursor.segment_end &&
                       cursor.next_forward - cursor.next_backward < stage.depth;
  if (!forward && forward_only()) return false;
  const int64_t b = micro_batch(cursor, forward ? cursor.next_forward++ : cursor.next_backward++);
  const StageId id{cursor.stage};
  cursor.compute = {
      .op = forward ? Op::Forward : Op::Backward,
      .stage = id,
      .micro_batch = MicroBatchId{b},
      .mini_batch = MiniBatchId{mini_batch(b)},
      .peer = id,
      .version = WeightVersion{version(b, forward ? stage.delays.forward : stage.delays.backward)}};
  if (!forward_only()) {
    cursor.compute.ahead = static_cast<int32_t>(
        plan::steps_ahead(shape_.compensation, {.mini_batch = cursor.compute.mini_batch.value,
                                                .version = cursor.compute.version.value,
                                                .forward_version = version(b, stage.delays.forward),
                                                .is_backward = !forward}));
  }
  return true;
}

bool LazySchedule::next_message(Cursor& cursor, Action& action, Op forward, Op backward,
                                bool from_sources) const {
  const StagePattern& stage = pattern(cursor);
  const uint32_t peer = (from_sources ? stage.first_source : stage.first_target) + cursor.message;
  if (peer >= (from_sources ? stage.first_target : stage.end_target)) {
    cursor.message = 0;
    return false;
  }
  action = cursor.compute;
  action.op = cursor.compute.op == Op::Forward ? forward : backward;
  action.peer = peers_[peer];
  ++cursor.message;
  action.version = WeightVersion{-1};
  action.ahead = 0;
  return true;
}

Action LazySchedule::step_action(const Cursor& cursor, Op op, int64_t version) const {
  const StageId stage{cursor.stage};
  return {.op = op,
          .stage = stage,
          .micro_batch = {},
          .mini_batch = MiniBatchId{cursor.next_step},
          .peer = stage,
          .version = WeightVersion{version}};
}

// SYNC where the stage is replicated, NORM where the shape has global_norm, FREE where nothing
// later uses the version, STEP.
void LazySchedule::next_step(Cursor& cursor, Action& action) const {
  using At = Cursor::At;
  if (cursor.at == At::Begin) {
    cursor.at = At::Norm;
    if (pattern(cursor).replicas > 1)
      return void(action = step_action(cursor, Op::SyncGradients, -1));
  }
  if (cursor.at == At::Norm) {
    cursor.at = At::Free;
    if (shape_.global_norm) return void(action = step_action(cursor, Op::NormGradients, -1));
  }
  if (cursor.at == At::Free) {
    cursor.at = At::Step;
    if (!used_later(cursor, cursor.next_step))
      return void(action = step_action(cursor, Op::FreeWeights, cursor.next_step));
  }
  action = step_action(cursor, Op::Step, cursor.next_step);
  ++cursor.next_step;
  cursor.at = At::Begin;
}

// Whether a backward that has not been read yet uses the version; its forward may have been.
bool LazySchedule::used_later(const Cursor& cursor, int64_t wanted) const {
  const int64_t delay = pattern(cursor).delays.backward;
  const int64_t first =
      wanted == 0 ? 0 : saturating_add(delay, saturating_mul(wanted, shape_.accumulate));
  int64_t local = cursor.next_backward;
  if (first > cursor.replica)
    local = std::max(local, ceil_div(first - cursor.replica, pattern(cursor).replicas));
  return local < cursor.count && version(micro_batch(cursor, local), delay) == wanted;
}

// Whether the backward just read is the last use of a version that has been replaced.
bool LazySchedule::frees_after(const Cursor& cursor) const {
  const Action& compute = cursor.compute;
  if (compute.op != Op::Backward || compute.version.value >= compute.mini_batch.value) return false;
  if (cursor.next_backward >= cursor.count) return true;
  return version(micro_batch(cursor, cursor.next_backward), pattern(cursor).delays.backward) !=
         compute.version.value;
}

bool LazySchedule::next(Cursor& cursor, Action& action) const {
  using At = Cursor::At;
  for (;;) {
    switch (cursor.at) {
      case At::Begin:
        if (cursor.count > 0 &&
            cursor.next_forward + cursor.next_backward == cursor.first_position &&
            !forward_only()) {
          cursor.steps_due = std::max(cursor.steps_due, mini_batch(micro_batch(cursor, 0)));
        }
        if (cursor.next_step < cursor.steps_due) {
          next_step(cursor, action);
          return true;
        }
        if (choose_compute(cursor)) {
          cursor.at = At::Recompute;
          break;
        }
        if (cursor.steps_due == num_steps_) return false;
        cursor.steps_due = num_steps_;
        break;
      case At::Norm:
      case At::Free:
      case At::Step:
        next_step(cursor, action);
        return true;
      case At::Recompute:
        cursor.at = At::Receives;
        if (cursor.compute.op == Op::Forward || !pattern(cursor).recomputes) break;
        action = cursor.compute;
        action.op = Op::Recompute;
        return true;
      case At::Receives:
        if (next_message(cursor, action, Op::RecvForward, Op::RecvBackward,
                         cursor.compute.op == Op::Forward))
          return true;
        cursor.at = At::Compute;
        break;
      case At::Compute:
        cursor.at = At::Sends;
        action = cursor.compute;
        return true;
      case At::Sends:
        if (next_message(cursor, action, Op::SendForward, Op::SendBackward,
                         cursor.compute.op == Op::Backward))
          return true;
        cursor.at = At::AfterCompute;
        break;
      case At::AfterCompute:
        cursor.at = At::Begin;
        if (cursor.compute.op == Op::Forward) break;
        cursor.steps_due = cursor.next_backward < cursor.count
                               ? mini_batch(micro_batch(cursor, cursor.next_backward))
                               : num_steps_;
        if (!frees_after(cursor)) break;
        action = cursor.compute;
        action.op = Op::FreeWeights;
        action.micro_batch = {};
        action.ahead = 0;
        return true;
    }
  }
}

int64_t LazySchedule::num_actions() const {
  int64_t links = 0;
  for (const auto& sources : neighbours_.sources) links += static_cast<int64_t>(sources.size());
  // A forward and its messages, the same back with R before it, and for each step a STEP, a FREE, a
  // SYNC on replicated stages and a NORM.
  const int64_t passes = forward_only() ? 1 : 2;
  int64_t per_micro_batch = saturating_mul(passes, shape_.num_stages() + 2 * links);
  if (!forward_only())
    per_micro_batch += std::count(shape_.recompute.begin(), shape_.recompute.end(), true);
  int64_t per_step = shape_.global_norm ? table_.num_workers() : 0;
  for (const int64_t count : shape_.replicas) per_step += count * (count > 1 ? 3 : 2);
  return saturating_add(saturating_mul(per_micro_batch, shape_.micro_batches),
                        saturating_mul(per_step, num_steps_));
}

std::vector<Action> LazySchedule::list(WorkerId worker) const {
  std::vector<Action> actions;
  Cursor position = cursor(worker);
  for (Action action; next(position, action);) actions.push_back(action);
  return actions;
}

}  // namespace penstock::schedule
