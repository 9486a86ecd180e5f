// Where the engine's actions come from: a schedule in memory, or one that is generated while it is
// read; internal to the simulator. Both offer the same functions, and the engine is compiled for
// each.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/lazy_schedule.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate::detail {

struct HeldStage {
  StageId stage;
  bool trains = false;  ///< the worker has a B or W of the stage
};

class InMemorySource {
 public:
  /// Throws ConfigError when the schedule is not lowered or does not fit its shape. O(actions * log
  /// stages of a worker).
  explicit InMemorySource(const schedule::Schedule& schedule);

  const schedule::ScheduleShape& shape() const { return schedule_.shape; }
  const schedule::WorkerTable& table() const { return table_; }
  /// The pairs of stages that exchange messages, ascending.
  const std::vector<schedule::StageLink>& links() const { return links_; }
  int64_t num_actions() const { return num_actions_; }
  /// The maximum of messages that may travel from one worker to another in one direction at once.
  int64_t most_in_channel() const {
    return saturating_mul(shape().micro_batches, static_cast<int64_t>(links_.size()));
  }
  /// Stages whose weights the worker holds.
  const std::vector<HeldStage>& stages_of(int32_t worker) const {
    return stages_[static_cast<size_t>(worker)];
  }

  struct Cursor {
    const schedule::Action* next = nullptr;
    const schedule::Action* end = nullptr;
  };
  Cursor cursor(int32_t worker) const {
    const auto& actions = schedule_.workers[static_cast<size_t>(worker)];
    return {actions.data(), actions.data() + actions.size()};
  }
  bool next(Cursor& cursor, schedule::Action& action) const {
    if (cursor.next == cursor.end) return false;
    action = *cursor.next++;
    return true;
  }
  /// The action that next() reads next; null at the end.
  const schedule::Action* peek(const Cursor& cursor) const {
    return cursor.next == cursor.end ? nullptr : cursor.next;
  }
  /// The worker that holds the other end of a message, -1 when none does. O(actions).
  int32_t other_end(const schedule::Action& message) const;

 private:
  void check_action(size_t worker, const schedule::Action& action) const;
  class LinkSet;
  void scan_worker(size_t worker, LinkSet& links);

  const schedule::Schedule& schedule_;
  schedule::WorkerTable table_;
  std::vector<schedule::StageLink> links_;
  std::vector<std::vector<HeldStage>> stages_;
  int64_t num_actions_ = 0;
};

class LazySource {
 public:
  explicit LazySource(const schedule::LazySchedule& schedule);

  const schedule::ScheduleShape& shape() const { return schedule_.shape(); }
  const schedule::WorkerTable& table() const { return schedule_.table(); }
  const std::vector<schedule::StageLink>& links() const { return links_; }
  int64_t num_actions() const { return schedule_.num_actions(); }
  int64_t most_in_channel() const { return schedule_.most_in_flight(); }
  std::vector<HeldStage> stages_of(int32_t worker) const;
  using Cursor = schedule::LazySchedule::Cursor;
  Cursor cursor(int32_t worker) const { return schedule_.cursor(WorkerId{worker}); }
  bool next(Cursor& cursor, schedule::Action& action) const {
    return schedule_.next(cursor, action);
  }
  /// Made while it is read: no action runs together with another.
  const schedule::Action* peek(const Cursor&) const { return nullptr; }
  int32_t other_end(const schedule::Action& message) const {
    return table().worker_of(message.peer, message.micro_batch).value;
  }

 private:
  const schedule::LazySchedule& schedule_;
  std::vector<schedule::StageLink> links_;
};

/// The link of a message, in the direction of the activations: a forward send or a backward receive
/// is at its start.
inline schedule::StageLink link_of(const schedule::Action& message) {
  const bool at_start =
      message.op == schedule::Op::SendForward || message.op == schedule::Op::RecvBackward;
  return at_start ? schedule::StageLink{message.stage, message.peer}
                  : schedule::StageLink{message.peer, message.stage};
}

}  // namespace penstock::simulate::detail
