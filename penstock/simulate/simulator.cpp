#include "penstock/simulate/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "penstock/schedule/text_format.h"
#include "penstock/simulate/memory.h"
#include "penstock/simulate/messages.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"

namespace penstock::simulate {

using schedule::Action;
using schedule::Op;
using schedule::Schedule;
using schedule::TimelineEvent;

namespace {

constexpr int64_t kUnknown = -1;

// Every wait of the model is for one particular event of another worker, so time is a fixed point that any order of running the workers
// reaches: each worker runs until it has to wait and is put back on the list of runnable ones by whoever ends the wait. No event queue.
class Simulation {
 public:
  Simulation(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule), costs_(costs), table_(detail::pair_messages(schedule, costs)) {
    messages_.resize(table_.messages.size());
    channels_.resize(table_.channel_begin.size() - 1);
    taken_ns_.resize(table_.messages.size());
    groups_.resize(table_.group_size.size());
    workers_.resize(schedule.workers.size());
    timeline_.source = "predicted";
    timeline_.workers.resize(schedule.workers.size());
    for (size_t w = 0; w < schedule.workers.size(); ++w) timeline_.workers[w].reserve(schedule.workers[w].size());
  }

  schedule::Timeline run() {
    for (size_t w = workers_.size(); w > 0; --w) runnable_.push_back(static_cast<int32_t>(w - 1));
    while (!runnable_.empty()) {
      const int32_t worker = runnable_.back();
      runnable_.pop_back();
      while (step(worker)) {
      }
    }
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].next < schedule_.workers[w].size()) fail_deadlocked();
    }
    return std::move(timeline_);
  }

 private:
  struct WorkerState {
    size_t next = 0;
    int64_t now_ns = 0;
    int64_t sync_released_ns = kUnknown;
    int32_t next_in_group = -1;
  };
  struct MessageState {
    int64_t arrival_ns = kUnknown;
    int64_t receiver_ready_ns = kUnknown;  ///< when its receive was reached, if before the arrival was known
    bool sender_waits = false;             ///< rendezvous only
  };
  struct ChannelState {
    int64_t busy_until_ns = 0;
    int64_t sent = 0;
    int64_t taken = 0;
    int32_t waiting_sender = -1;
  };
  struct GroupState {
    int32_t arrived = 0;
    int64_t latest_ns = 0;
    int32_t first_waiting = -1;
  };

  // Runs the worker's next action; false when it has none or must wait.
  bool step(int32_t worker) {
    WorkerState& state = workers_[static_cast<size_t>(worker)];
    const auto& actions = schedule_.workers[static_cast<size_t>(worker)];
    if (state.next >= actions.size()) return false;
    const Action& action = actions[state.next];
    const int32_t slot = table_.slot[static_cast<size_t>(table_.first_action[static_cast<size_t>(worker)]) + state.next];
    const StageCost& cost = costs_.stages[action.stage.index()];
    switch (action.op) {
      case Op::Forward:
        return finish(worker, action, 0, cost.forward_ns);
      case Op::Backward:
        return finish(worker, action, 0, cost.backward_ns);
      case Op::Step:
        return finish(worker, action, 0, cost.step_ns);
      case Op::FreeWeights:
        return finish(worker, action, 0, 0);
      case Op::SendForward:
      case Op::SendBackward:
        return send(worker, action, static_cast<size_t>(slot));
      case Op::RecvForward:
      case Op::RecvBackward:
        return receive(worker, action, static_cast<size_t>(slot));
      case Op::SyncGradients:
        return sync(worker, action, static_cast<size_t>(slot));
    }
    throw InternalError("simulator: unknown action");
  }

  bool finish(int32_t worker, const Action& action, int64_t waiting_ns, int64_t working_ns) {
    WorkerState& state = workers_[static_cast<size_t>(worker)];
    const int64_t start_ns = state.now_ns;
    state.now_ns = saturating_add(saturating_add(start_ns, waiting_ns), working_ns);
    timeline_.workers[static_cast<size_t>(worker)].push_back({action, start_ns, state.now_ns, waiting_ns});
    ++state.next;
    return true;
  }

  bool send(int32_t worker, const Action& action, size_t id) {
    const detail::Message& message = table_.messages[id];
    ChannelState& channel = channels_[static_cast<size_t>(message.channel)];
    MessageState& state = messages_[id];
    const int64_t now_ns = workers_[static_cast<size_t>(worker)].now_ns;
    int64_t leave_ns = now_ns;
    if (costs_.credits == 0) {
      if (state.receiver_ready_ns == kUnknown) {
        state.sender_waits = true;
        return false;
      }
      leave_ns = std::max(leave_ns, state.receiver_ready_ns);
    } else if (channel.sent >= costs_.credits) {
      const int64_t must_be_taken = channel.sent - costs_.credits + 1;
      if (channel.taken < must_be_taken) {
        channel.waiting_sender = worker;
        return false;
      }
      leave_ns = std::max(leave_ns,
                          taken_ns_[static_cast<size_t>(table_.channel_begin[static_cast<size_t>(message.channel)] + must_be_taken - 1)]);
    }
    ++channel.sent;
    channel.busy_until_ns = saturating_add(std::max(channel.busy_until_ns, leave_ns), message.transfer_ns);
    state.arrival_ns = saturating_add(channel.busy_until_ns, costs_.latency_ns);
    if (state.receiver_ready_ns != kUnknown) runnable_.push_back(message.receiver);
    return finish(worker, action, leave_ns - now_ns, 0);
  }

  bool receive(int32_t worker, const Action& action, size_t id) {
    const detail::Message& message = table_.messages[id];
    MessageState& state = messages_[id];
    const int64_t now_ns = workers_[static_cast<size_t>(worker)].now_ns;
    if (state.arrival_ns == kUnknown) {
      state.receiver_ready_ns = now_ns;
      if (state.sender_waits) runnable_.push_back(message.sender);
      return false;
    }
    const int64_t taken_ns = std::max(now_ns, state.arrival_ns);
    ChannelState& channel = channels_[static_cast<size_t>(message.channel)];
    taken_ns_[static_cast<size_t>(table_.channel_begin[static_cast<size_t>(message.channel)] + channel.taken)] = taken_ns;
    ++channel.taken;
    if (channel.waiting_sender >= 0) {
      runnable_.push_back(channel.waiting_sender);
      channel.waiting_sender = -1;
    }
    return finish(worker, action, taken_ns - now_ns, 0);
  }

  bool sync(int32_t worker, const Action& action, size_t id) {
    WorkerState& state = workers_[static_cast<size_t>(worker)];
    const int64_t sync_ns = costs_.stages[action.stage.index()].sync_ns;
    if (state.sync_released_ns != kUnknown) {
      const int64_t waiting_ns = state.sync_released_ns - state.now_ns;
      state.sync_released_ns = kUnknown;
      return finish(worker, action, waiting_ns, sync_ns);
    }
    GroupState& group = groups_[id];
    group.latest_ns = std::max(group.latest_ns, state.now_ns);
    if (++group.arrived < table_.group_size[id]) {
      state.next_in_group = group.first_waiting;
      group.first_waiting = worker;
      return false;
    }
    for (int32_t other = group.first_waiting; other >= 0; other = workers_[static_cast<size_t>(other)].next_in_group) {
      workers_[static_cast<size_t>(other)].sync_released_ns = group.latest_ns;
      runnable_.push_back(other);
    }
    const int64_t waiting_ns = group.latest_ns - state.now_ns;
    group = {};
    return finish(worker, action, waiting_ns, sync_ns);
  }

  std::string describe_wait(size_t worker) const {
    const size_t next = workers_[worker].next;
    const Action& action = schedule_.workers[worker][next];
    const int32_t slot = table_.slot[static_cast<size_t>(table_.first_action[worker]) + next];
    const std::string at = fmt::format("worker {} stands at {} and waits for ", worker, to_text(action));
    if (action.op == Op::SyncGradients) {
      return fmt::format("{}the other replicas of stage {} ({} of {} are there)", at, action.stage.value,
                         groups_[static_cast<size_t>(slot)].arrived, table_.group_size[static_cast<size_t>(slot)]);
    }
    const detail::Message& message = table_.messages[static_cast<size_t>(slot)];
    if (schedule::is_receive(action.op)) {
      if (message.sender < 0) return at + "a message that no worker sends";
      return fmt::format("{}worker {} to send it", at, message.sender);
    }
    if (message.receiver < 0) return at + "a message to be taken that no worker receives";
    return fmt::format("{}worker {} to {}", at, message.receiver,
                       costs_.credits == 0 ? "receive it" : "take an earlier message out of the channel");
  }

  [[noreturn]] void fail_deadlocked() const {
    constexpr int kShown = 4;
    int blocked = 0;
    std::string text;
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].next >= schedule_.workers[w].size()) continue;
      if (++blocked <= kShown) text += (blocked == 1 ? "" : "; ") + describe_wait(w);
    }
    if (blocked > kShown) text += fmt::format("; and {} more", blocked - kShown);
    throw ConfigError(
        fmt::format("the schedule deadlocks with {} credits per channel: {}. Run `penstock verify` on it first.", costs_.credits, text));
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const detail::MessageTable table_;
  std::vector<MessageState> messages_;
  std::vector<ChannelState> channels_;
  std::vector<int64_t> taken_ns_;  ///< per channel, when its n-th message was taken
  std::vector<GroupState> groups_;
  std::vector<WorkerState> workers_;
  std::vector<int32_t> runnable_;
  schedule::Timeline timeline_;
};

void check_costs(const Costs& costs, int num_stages) {
  if (costs.stages.size() != static_cast<size_t>(num_stages)) {
    throw ConfigError(fmt::format("the costs are for {} stages, the schedule has {}", costs.stages.size(), num_stages));
  }
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost& stage = costs.stages[s];
    if (std::min({stage.forward_ns, stage.backward_ns, stage.step_ns, stage.sync_ns, stage.stash_bytes, stage.weight_bytes}) < 0) {
      throw ConfigError(fmt::format("the costs of stage {} hold a negative time or size", s));
    }
  }
  for (const LinkCost& link : costs.links) {
    const bool known = link.from.value >= 0 && link.to.value > link.from.value && link.to.value < num_stages;
    if (!known || link.bytes < 0) {
      throw ConfigError(fmt::format("the costs have a link {} -> {} of {} bytes; the schedule has stages 0 to {} and links lead forwards",
                                    link.from.value, link.to.value, link.bytes, num_stages - 1));
    }
  }
  if (std::min({costs.bandwidth_bytes_per_s, costs.latency_ns, costs.credits, costs.samples_per_micro_batch}) < 0 ||
      !(costs.optimizer_state_per_weight >= 0)) {
    throw ConfigError("bandwidth, latency, credits, samples and optimiser state must not be negative");
  }
}

void check_schedule(const Schedule& schedule) {
  if (!schedule.lowered) throw ConfigError("the schedule holds compute actions only; lower() it before simulating it");
  const int num_stages = schedule.shape.num_stages();
  for (size_t w = 0; w < schedule.workers.size(); ++w) {
    for (const Action& action : schedule.workers[w]) {
      if (action.stage.value >= 0 && action.stage.value < num_stages && action.peer.value >= 0 && action.peer.value < num_stages) continue;
      throw ConfigError(
          fmt::format("worker {}: {} names a stage that does not exist; there are {} stages", w, to_text(action), num_stages));
    }
  }
  // Message and action numbers are 32 bits inside.
  if (schedule.num_actions() > INT32_MAX) throw ConfigError("the schedule has more than 2^31 actions; simulate fewer micro-batches");
}

}  // namespace

Result simulate(const Schedule& schedule, const Costs& costs) {
  check_schedule(schedule);
  check_costs(costs, schedule.shape.num_stages());
  Result result;
  result.timeline = Simulation(schedule, costs).run();
  result.makespan_ns = result.timeline.makespan_ns();
  result.idle_share = result.timeline.idle_share();
  result.peak_memory_bytes = detail::peak_memory_bytes(schedule, costs);
  result.micro_batches = schedule.shape.micro_batches;
  if (result.makespan_ns > 0) {
    const double samples = static_cast<double>(result.micro_batches) * static_cast<double>(costs.samples_per_micro_batch);
    result.throughput_samples_per_s = samples * 1e9 / static_cast<double>(result.makespan_ns);
  }
  return result;
}

}  // namespace penstock::simulate
