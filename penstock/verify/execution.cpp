#include "penstock/verify/execution.h"

#include <algorithm>
#include <utility>

namespace penstock::verify {
namespace {

constexpr uint8_t kForward = 1;
constexpr uint8_t kBackward = 2;

}  // namespace

Execution::Execution(const Facts& facts, const MessageIndex& index, int64_t credits)
    : facts_(facts), index_(index), credits_(credits), position_(facts.workers().size(), 0) {
  if (!facts.schedule.lowered) {
    computed_.resize(facts.num_cells(), 0);
    return;
  }
  arrived_.resize(index.num_messages(), 0);
  waiting_.resize(index.num_messages(), -1);
  in_flight_.resize(index.num_channels(), 0);
  no_credit_.resize(index.num_channels(), -1);
  at_sync_.resize(static_cast<size_t>(facts.num_stages * facts.mini_batches), 0);
  in_sync_.resize(facts.workers().size(), 0);
}

bool Execution::run() {
  for (size_t w = position_.size(); w-- > 0;) wake(WorkerId{static_cast<int32_t>(w)});
  while (!runnable_.empty()) {
    const WorkerId worker = runnable_.back();
    runnable_.pop_back();
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
  if (is_compute(action.op)) return attempt_compute(action);
  if (is_send(action.op)) return attempt_send(worker, action);
  if (is_receive(action.op)) return attempt_receive(worker, action);
  if (action.op == Op::SyncGradients) return attempt_sync(worker, action);
  return true;
}

bool Execution::attempt_compute(const Action& action) {
  if (facts_.schedule.lowered) return true;
  const StageId stage = action.stage;
  const size_t own = facts_.cell(stage, action.micro_batch);
  const auto stride = static_cast<size_t>(facts_.micro_batches);
  const bool is_last = stage.value + 1 == facts_.num_stages;
  if (action.op == Op::Forward) {
    if (stage.value > 0 && (computed_[own - stride] & kForward) == 0) return false;
    computed_[own] |= kForward;
    if (!is_last) wake(facts_.table.worker_of(StageId{stage.value + 1}, action.micro_batch));
  } else {
    if ((computed_[own] & kForward) == 0) return false;
    if (!is_last && (computed_[own + stride] & kBackward) == 0) return false;
    computed_[own] |= kBackward;
    if (stage.value > 0) wake(facts_.table.worker_of(StageId{stage.value - 1}, action.micro_batch));
  }
  return true;
}

bool Execution::attempt_send(WorkerId worker, const Action& action) {
  const size_t message = index_.message(action);
  int32_t& waiting = waiting_[message];
  if (credits_ == 0) {
    // Rendezvous: whoever comes second completes both ends.
    if (waiting < 0 || waiting == worker.value) {
      waiting = worker.value;
      return false;
    }
    finish_action_of(WorkerId{std::exchange(waiting, -1)});
    return true;
  }
  const size_t channel = index_.channel(action);
  if (in_flight_[channel] >= credits_) {
    no_credit_[channel] = worker.value;
    return false;
  }
  most_in_flight_ = std::max(most_in_flight_, ++in_flight_[channel]);
  ++arrived_[message];
  if (waiting >= 0) wake(WorkerId{std::exchange(waiting, -1)});
  return true;
}

bool Execution::attempt_receive(WorkerId worker, const Action& action) {
  const size_t message = index_.message(action);
  int32_t& waiting = waiting_[message];
  if (credits_ == 0) {
    if (waiting < 0 || waiting == worker.value) {
      waiting = worker.value;
      return false;
    }
    finish_action_of(WorkerId{std::exchange(waiting, -1)});
    return true;
  }
  if (arrived_[message] == 0) {
    waiting = worker.value;
    return false;
  }
  --arrived_[message];
  const size_t channel = index_.channel(action);
  --in_flight_[channel];
  int32_t& sender = no_credit_[channel];
  if (sender >= 0) wake(WorkerId{std::exchange(sender, -1)});
  return true;
}

bool Execution::attempt_sync(WorkerId worker, const Action& action) {
  uint8_t& counted = in_sync_[worker.index()];
  if (counted != 0) return false;  // woken for nothing: the last replica to arrive moves the others on
  const int replicas = facts_.table.replicas(action.stage);
  int32_t& arrived = at_sync_[sync_cell(action)];
  if (arrived >= replicas) return true;  // a sync too many; the rules complete and order say so
  if (++arrived < replicas) {
    counted = 1;
    return false;
  }
  const WorkerId first = facts_.table.first_worker(action.stage);
  for (int32_t w = first.value; w < first.value + replicas; ++w) {
    const WorkerId other{w};
    if (in_sync_[other.index()] == 0 || blocked_at(other).mini_batch != action.mini_batch) continue;
    in_sync_[other.index()] = 0;
    finish_action_of(other);
  }
  return true;
}

void Execution::finish_action_of(WorkerId worker) {
  ++position_[worker.index()];
  wake(worker);
}

void Execution::wake(WorkerId worker) { runnable_.push_back(worker); }

std::vector<WorkerId> Execution::waits_for(WorkerId worker) const {
  const Action& action = blocked_at(worker);
  if (is_message(action.op)) return {facts_.table.worker_of(action.peer, action.micro_batch)};
  std::vector<WorkerId> others;
  if (action.op == Op::SyncGradients) {
    const WorkerId first = facts_.table.first_worker(action.stage);
    for (int32_t w = first.value; w < first.value + facts_.table.replicas(action.stage); ++w) {
      const WorkerId other{w};
      const bool arrived = is_blocked(other) && in_sync_[other.index()] != 0 && blocked_at(other).mini_batch == action.mini_batch;
      if (!arrived) others.push_back(other);
    }
    return others;
  }
  if (action.op == Op::Backward && (computed_[facts_.cell(action.stage, action.micro_batch)] & kForward) == 0) return {worker};
  return {facts_.table.worker_of(StageId{action.stage.value + (action.op == Op::Forward ? -1 : 1)}, action.micro_batch)};
}

int64_t Execution::wait_search_cost(WorkerId worker) const {
  const Action& action = blocked_at(worker);
  return action.op == Op::SyncGradients ? facts_.table.replicas(action.stage) : 1;
}

}  // namespace penstock::verify
