#include "penstock/verify/execution.h"

#include <algorithm>
#include <utility>

namespace penstock::verify {
namespace {

constexpr uint8_t kRanForward = 1;
constexpr uint8_t kInputGradients = 2;  // B or I

}  // namespace

Execution::Execution(const Facts& facts, const MessageIndex& index, int64_t credits)
    : facts_(facts),
      index_(index),
      credits_(credits),
      position_(facts.workers().size(), 0),
      is_queued_(facts.workers().size(), 0),
      in_barrier_(facts.workers().size(), 0) {
  size_t teams = 0;
  for (int32_t s = 0; s < facts.num_stages && !facts.places.empty(); ++s) {
    const bool is_member = facts.places.of(StageId{s}).member > 0;
    first_team_.push_back(is_member ? first_team_.back() : teams);
    if (!is_member) teams += static_cast<size_t>(facts.table.replicas(StageId{s}));
  }
  at_team_.resize(teams);
  if (!facts.schedule.lowered) {
    computed_.resize(facts.num_cells(), 0);
    return;
  }
  messages_.resize(index.num_messages());
  if (credits > 0) {
    in_flight_.resize(index.num_channels(), 0);
    no_credit_.resize(index.num_channels(), -1);
  }
  at_sync_.resize(static_cast<size_t>(facts.num_stages * facts.mini_batches), 0);
  at_norm_.resize(static_cast<size_t>(facts.mini_batches), 0);
}

bool Execution::run() {
  for (size_t w = position_.size(); w-- > 0;) wake(WorkerId{static_cast<int32_t>(w)});
  while (!runnable_.empty()) {
    const WorkerId worker = runnable_.back();
    runnable_.pop_back();
    is_queued_[worker.index()] = 0;
    advance(worker);
  }
  for (size_t w = 0; w < position_.size(); ++w) {
    if (is_blocked(WorkerId{static_cast<int32_t>(w)})) return false;
  }
  return true;
}

void Execution::advance(WorkerId worker) {
  size_t& position = position_[worker.index()];
  const std::vector<Action>& actions = list(worker);
  while (position < actions.size() && attempt(worker, actions[position])) ++position;
}

bool Execution::attempt(WorkerId worker, const Action& action) {
  if (is_compute(action.op)) return attempt_compute(worker, action);
  if (is_send(action.op)) return attempt_send(worker, action);
  if (is_receive(action.op)) return attempt_receive(worker, action);
  if (action.op == Op::SyncGradients || action.op == Op::NormGradients)
    return attempt_barrier(worker, action);
  return true;
}

bool Execution::has_data(const Action& action) const {
  const size_t own = facts_.cell(action.stage, action.micro_batch);
  // Any member of the stage before or behind: they end together.
  const schedule::TeamPlace place = facts_.places.of(action.stage);
  const int32_t behind = place.first.value + place.size;
  const auto computed = [&](int32_t stage, uint8_t what) {
    return (computed_[facts_.cell(StageId{stage}, action.micro_batch)] & what) != 0;
  };
  if (action.op == Op::Forward)
    return place.first.value == 0 || computed(place.first.value - 1, kRanForward);
  if (action.op == Op::BackwardWeight) return (computed_[own] & kInputGradients) != 0;
  if ((computed_[own] & kRanForward) == 0) return false;
  return action.op == Op::Recompute || behind == facts_.num_stages ||
         computed(behind, kInputGradients);
}

const Action* Execution::together_with(WorkerId worker) const {
  const size_t next = position_[worker.index()] + 1;
  const std::vector<Action>& actions = list(worker);
  if (!actions[next - 1].with_next || next == actions.size()) return nullptr;
  return is_compute(actions[next].op) ? &actions[next] : nullptr;
}

bool Execution::has_data_at(WorkerId worker) const {
  if (facts_.schedule.lowered) return true;
  const Action* other = together_with(worker);
  return has_data(blocked_at(worker)) && (other == nullptr || has_data(*other));
}

bool Execution::is_at_barrier(WorkerId worker) const {
  const Action& action = blocked_at(worker);
  if (action.op == Op::SyncGradients || action.op == Op::NormGradients) return true;
  return facts_.is_team_meeting(action) && has_data_at(worker);
}

int64_t Execution::barrier_key(const Action& barrier) const {
  if (barrier.op == Op::NormGradients) return -1;
  if (is_compute(barrier.op)) return facts_.num_stages + static_cast<int64_t>(team_of(barrier));
  return barrier.stage.value;
}

bool Execution::attempt_compute(WorkerId worker, const Action& action) {
  if (!has_data_at(worker)) return false;
  if (facts_.is_team_meeting(action) && !attempt_team(worker, action)) return false;
  if (!facts_.schedule.lowered) note_computed(action);
  return true;
}

/// The member that arrives last lets the others continue. Members at two computations wait for each
/// other forever.
bool Execution::attempt_team(WorkerId worker, const Action& action) {
  Meeting& meeting = at_team_[team_of(action)];
  uint8_t& counted = in_barrier_[worker.index()];
  if (counted != 0) return false;
  if (meeting.arrived > 0 && (meeting.op != action.op || meeting.micro_batch != action.micro_batch))
    return false;
  if (meeting.arrived + 1 < facts_.places.size(action.stage)) {
    meeting = {meeting.arrived + 1, action.op, action.micro_batch};
    counted = 1;
    return false;
  }
  meeting.arrived = 0;
  barrier_members(action, [&](WorkerId other) {
    if (other == worker) return;
    in_barrier_[other.index()] = 0;
    if (!facts_.schedule.lowered) note_computed(blocked_at(other));
    finish_action_of(other);
  });
  return true;
}

void Execution::note_computed(const Action& action) {
  const size_t own = facts_.cell(action.stage, action.micro_batch);
  const bool is_forward = action.op == Op::Forward;
  if (!is_forward && !makes_input_gradients(action.op)) return;
  computed_[own] |= is_forward ? kRanForward : kInputGradients;
  // Members end together: one of them wakes the others' neighbours, too.
  const schedule::TeamPlace place = facts_.places.of(action.stage);
  if (place.member > 0) return;
  wake_team(StageId{place.first.value + (is_forward ? place.size : -1)}, action.micro_batch);
}

void Execution::wake_team(StageId stage, MicroBatchId micro_batch) {
  if (stage.value < 0 || stage.value >= facts_.num_stages) return;
  const schedule::TeamPlace place = facts_.places.of(stage);
  for (int m = 0; m < place.size; ++m)
    wake(facts_.owner(StageId{place.first.value + m}, micro_batch));
}

/// Rendezvous: the worker that arrives second completes both ends.
bool Execution::meet(WorkerId worker, int32_t& waiting) {
  if (waiting < 0 || waiting == worker.value) {
    waiting = worker.value;
    return false;
  }
  finish_action_of(WorkerId{std::exchange(waiting, -1)});
  return true;
}

bool Execution::attempt_send(WorkerId worker, const Action& action) {
  Message& message = messages_[index_.message(action)];
  if (credits_ == 0) return meet(worker, message.waiting);
  const size_t channel = index_.channel(action);
  if (in_flight_[channel] >= credits_) {
    no_credit_[channel] = worker.value;
    return false;
  }
  most_in_flight_ = std::max(most_in_flight_, ++in_flight_[channel]);
  ++message.arrived;
  if (message.waiting >= 0) wake(WorkerId{std::exchange(message.waiting, -1)});
  return true;
}

bool Execution::attempt_receive(WorkerId worker, const Action& action) {
  Message& message = messages_[index_.message(action)];
  if (credits_ == 0) return meet(worker, message.waiting);
  if (message.arrived == 0) {
    message.waiting = worker.value;
    return false;
  }
  --message.arrived;
  const size_t channel = index_.channel(action);
  --in_flight_[channel];
  int32_t& sender = no_credit_[channel];
  if (sender >= 0) wake(WorkerId{std::exchange(sender, -1)});
  return true;
}

bool Execution::attempt_barrier(WorkerId worker, const Action& action) {
  uint8_t& counted = in_barrier_[worker.index()];
  if (counted != 0)
    return false;  // woken too early: the last worker to arrive lets the others continue
  const bool is_norm = action.op == Op::NormGradients;
  const int32_t expected =
      is_norm ? facts_.table.num_workers() : facts_.table.replicas(action.stage);
  const size_t sync =
      action.stage.index() * static_cast<size_t>(facts_.mini_batches) + action.mini_batch.index();
  int32_t& arrived = is_norm ? at_norm_[action.mini_batch.index()] : at_sync_[sync];
  if (arrived >= expected) return true;  // one too many; the rules complete and order report it
  if (++arrived < expected) {
    counted = 1;
    return false;
  }
  barrier_members(action, [&](WorkerId other) {
    if (other == worker || in_barrier_[other.index()] == 0 || !is_at(other, action)) return;
    in_barrier_[other.index()] = 0;
    finish_action_of(other);
  });
  return true;
}

void Execution::finish_action_of(WorkerId worker) {
  ++position_[worker.index()];
  wake(worker);
}

void Execution::wake(WorkerId worker) {
  uint8_t& queued = is_queued_[worker.index()];
  if (queued == 0) runnable_.push_back(worker);
  queued = 1;
}

WorkerId Execution::waits_for(WorkerId worker) const {
  if (is_message(blocked_at(worker).op))
    return facts_.owner(blocked_at(worker).peer, blocked_at(worker).micro_batch);
  const Action* other = together_with(worker);
  const Action& action =
      other != nullptr && has_data(blocked_at(worker)) ? *other : blocked_at(worker);
  const schedule::TeamPlace place = facts_.places.of(action.stage);
  if (action.op == Op::Forward)
    return facts_.owner(StageId{place.first.value - 1}, action.micro_batch);
  const bool has_forward =
      (computed_[facts_.cell(action.stage, action.micro_batch)] & kRanForward) != 0;
  if (action.op == Op::BackwardWeight || !has_forward) return worker;
  return facts_.owner(StageId{place.first.value + place.size}, action.micro_batch);
}

}  // namespace penstock::verify
