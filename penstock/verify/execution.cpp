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
      is_queued_(facts.workers().size(), 0) {
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
  in_barrier_.resize(facts.workers().size(), 0);
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
  const auto stride = static_cast<size_t>(facts_.micro_batches);
  if (action.op == Op::Forward)
    return action.stage.value == 0 || (computed_[own - stride] & kRanForward) != 0;
  if (action.op == Op::BackwardWeight) return (computed_[own] & kInputGradients) != 0;
  if ((computed_[own] & kRanForward) == 0) return false;
  return action.op == Op::Recompute || action.stage.value + 1 == facts_.num_stages ||
         (computed_[own + stride] & kInputGradients) != 0;
}

const Action* Execution::together_with(WorkerId worker) const {
  const size_t next = position_[worker.index()] + 1;
  const std::vector<Action>& actions = list(worker);
  if (!actions[next - 1].with_next || next == actions.size()) return nullptr;
  return is_compute(actions[next].op) ? &actions[next] : nullptr;
}

bool Execution::attempt_compute(WorkerId worker, const Action& action) {
  if (facts_.schedule.lowered) return true;
  if (!has_data(action)) return false;
  const Action* other = together_with(worker);
  if (other != nullptr && !has_data(*other)) return false;
  const StageId stage = action.stage;
  const size_t own = facts_.cell(stage, action.micro_batch);
  if (action.op == Op::Forward) {
    computed_[own] |= kRanForward;
    if (stage.value + 1 < facts_.num_stages)
      wake(facts_.owner(StageId{stage.value + 1}, action.micro_batch));
  } else if (makes_input_gradients(action.op)) {
    computed_[own] |= kInputGradients;
    if (stage.value > 0) wake(facts_.owner(StageId{stage.value - 1}, action.micro_batch));
  }
  return true;
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
  if (action.op == Op::Forward)
    return facts_.owner(StageId{action.stage.value - 1}, action.micro_batch);
  const bool has_forward =
      (computed_[facts_.cell(action.stage, action.micro_batch)] & kRanForward) != 0;
  if (action.op == Op::BackwardWeight || !has_forward) return worker;
  return facts_.owner(StageId{action.stage.value + 1}, action.micro_batch);
}

}  // namespace penstock::verify
