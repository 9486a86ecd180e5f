// The event loop; internal to the simulator. Compiled for each source of actions (sources.h).
//
// Every wait but those for links is for one particular event of another worker (a message, a credit, the last replica), so a worker runs on
// alone until it has to wait or comes to a send. Sends happen in the order of their times, because they may meet on a link: they go through
// an event queue, as do messages that reach their next link later. Ties are broken by worker, so the result depends on nothing but the
// input.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "penstock/schedule/text_format.h"
#include "penstock/simulate/credits.h"
#include "penstock/simulate/event_queue.h"
#include "penstock/simulate/link_table.h"
#include "penstock/simulate/mailbox.h"
#include "penstock/simulate/memory.h"
#include "penstock/simulate/network.h"
#include "penstock/simulate/simulator.h"
#include "penstock/simulate/sources.h"
#include "penstock/simulate/variation.h"
#include "penstock/simulate/waiting_messages.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"

namespace penstock::simulate::detail {

template <class Source>
class Engine {
 public:
  Engine(Source& source, const Costs& costs, const Options& options)
      : source_(source),
        costs_(costs),
        options_(options),
        links_(source.links(), costs, source.shape().num_stages()),
        network_(costs, source.table(), links_.bytes()),
        variation_(options, source.table().num_workers()),
        credits_(costs.credits, source.most_in_channel()),
        mailboxes_(2 * links_.size()),
        groups_(static_cast<size_t>(source.shape().num_stages())),
        workers_(static_cast<size_t>(source.table().num_workers())),
        waiting_(network_.num_wires()) {
    if (options.keep_timeline) timeline_.workers.resize(workers_.size());
    timeline_.source = "predicted";
    for (size_t w = 0; w < workers_.size(); ++w) {
      const bool trains = source.trains(static_cast<int32_t>(w));
      for (const StageId stage : source.stages_of(static_cast<int32_t>(w))) {
        workers_[w].memory.add_stage(costs.stages[stage.index()], trains, costs.optimizer_state_per_weight);
      }
    }
  }

  void run() {
    for (size_t w = workers_.size(); w > 0; --w) runnable_.push_back(static_cast<int32_t>(w - 1));
    for (;;) {
      while (!runnable_.empty()) {
        const int32_t worker = runnable_.back();
        runnable_.pop_back();
        run_worker(worker);
      }
      if (events_.empty()) break;
      const Event event = events_.pop();
      prefetch_next();
      if (event.is_worker()) {
        run_worker(event.worker());
      } else {
        move_on(event.slot(), event.time_ns);
      }
    }
    for (const Worker& worker : workers_) {
      if (worker.stands) fail_deadlocked();
    }
    if (options_.progress) options_.progress(done_, source_.num_actions());
  }

  /// The latest end, and the time in F, B, SYNC and STEP of all workers.
  int64_t makespan_ns() const {
    int64_t last = 0;
    for (const Worker& worker : workers_) last = std::max(last, worker.now_ns);
    return last;
  }
  double busy_ns() const {
    double sum = 0;
    for (const Worker& worker : workers_) sum += static_cast<double>(worker.busy_ns);
    return sum;
  }
  std::vector<int64_t> peak_memory_bytes() const {
    std::vector<int64_t> peaks;
    peaks.reserve(workers_.size());
    for (const Worker& worker : workers_) peaks.push_back(worker.memory.peak_bytes());
    return peaks;
  }
  schedule::Timeline& timeline() { return timeline_; }
  /// When every worker had made each step; empty when no worker ever fails.
  const std::vector<int64_t>& finished_ns() const { return finished_ns_; }

 private:
  struct Worker {
    schedule::Action action;  ///< where it stands, if `stands`
    bool stands = false;
    int64_t now_ns = 0;    ///< end of the last action
    int64_t ready_ns = 0;  ///< a send may not begin before
    int64_t busy_ns = 0;
    int32_t next_in_group = -1;
    MemoryMeter memory;
  };
  /// Replicas of a stage that stand at a SYNC.
  struct Group {
    int32_t arrived = 0;
    int32_t first_waiting = -1;
    int64_t latest_ns = 0;
    int64_t mini_batch = 0;
  };
  // On large clusters one event's worker lies far from the last one's in memory, so it is fetched an event ahead.
  void prefetch_next() const {
    if (events_.empty() || !events_.first().is_worker()) return;
    const int32_t next = events_.first().worker();
    prefetch(workers_[static_cast<size_t>(next)]);
    source_.prefetch_worker(next);
  }

  Worker& worker_at(int32_t worker) { return workers_[static_cast<size_t>(worker)]; }

  // Runs the worker until it waits, ends, or must let others send first.
  void run_worker(int32_t id) {
    Worker& worker = worker_at(id);
    for (;;) {
      if (!worker.stands) {
        if (!source_.next(id, worker.action)) return;
        worker.stands = true;
        constexpr int64_t kReportEvery = int64_t{1} << 20;
        if (++done_ % kReportEvery == 0 && options_.progress) options_.progress(done_, source_.num_actions());
      }
      const schedule::Action& action = worker.action;
      const StageCost& cost = costs_.stages[action.stage.index()];
      bool went_on = true;
      switch (action.op) {
        case schedule::Op::Forward:
          finish(worker, id, 0, variation_.compute_ns(id, action, cost.forward_ns));
          break;
        case schedule::Op::Backward:
          finish(worker, id, 0, variation_.compute_ns(id, action, cost.backward_ns));
          break;
        case schedule::Op::Step:
          step(worker, id, variation_.compute_ns(id, action, cost.step_ns));
          break;
        case schedule::Op::FreeWeights:
          finish(worker, id, 0, 0);
          break;
        case schedule::Op::SendForward:
        case schedule::Op::SendBackward:
          went_on = send(worker, id);
          break;
        case schedule::Op::RecvForward:
        case schedule::Op::RecvBackward:
          went_on = receive(worker, id);
          break;
        case schedule::Op::SyncGradients:
          went_on = sync(worker, id);
          break;
      }
      if (!went_on) return;
    }
  }

  void finish(Worker& worker, int32_t id, int64_t waiting_ns, int64_t working_ns) {
    const int64_t start_ns = worker.now_ns;
    const schedule::Op op = worker.action.op;
    worker.now_ns = saturating_add(saturating_add(start_ns, waiting_ns), working_ns);
    worker.ready_ns = worker.now_ns;
    worker.stands = false;
    if (schedule::is_compute(op) || op == schedule::Op::SyncGradients || op == schedule::Op::Step) {
      worker.busy_ns = saturating_add(worker.busy_ns, worker.now_ns - start_ns - waiting_ns);
    }
    worker.memory.on(op, costs_.stages[worker.action.stage.index()]);
    if (options_.keep_timeline) timeline_.workers[static_cast<size_t>(id)].push_back({worker.action, start_ns, worker.now_ns, waiting_ns});
  }

  void step(Worker& worker, int32_t id, int64_t step_ns) {
    const int64_t mini_batch = worker.action.mini_batch.value;
    const Failures& failures = options_.failures;
    const bool saves = failures.checkpoint_every > 0 && (mini_batch + 1) % failures.checkpoint_every == 0;
    finish(worker, id, saves ? failures.checkpoint_ns : 0, step_ns);
    if (failures.worker_mtbf_ns == 0 || mini_batch >= source_.shape().num_mini_batches()) return;
    const auto index = static_cast<size_t>(mini_batch);
    if (index >= finished_ns_.size()) finished_ns_.resize(index + 1);
    finished_ns_[index] = std::max(finished_ns_[index], worker.now_ns);
  }

  size_t mailbox_of(const schedule::Action& action) const {
    const bool backward = action.op == schedule::Op::SendBackward || action.op == schedule::Op::RecvBackward;
    return 2 * links_.find(link_of(action)) + (backward ? 1 : 0);
  }

  static bool is_backward(size_t mailbox) { return mailbox % 2 == 1; }

  // Sends when it is the worker's turn; false when it has to wait.
  bool send(Worker& worker, int32_t id) {
    const Event turn = Event::of_worker(worker.ready_ns, id);
    if (!runnable_.empty() || (!events_.empty() && events_.first().before(turn))) {
      events_.push(turn);
      return false;
    }
    const schedule::Action& action = worker.action;
    const size_t mailbox = mailbox_of(action);
    const int32_t receiver = source_.table().worker_of(action.peer, action.micro_batch).value;
    Letter* letter = mailboxes_[mailbox].find(action.micro_batch.value);
    if (letter != nullptr && letter->state != Letter::State::Expected) {
      if (letter->state != Letter::State::Offered || letter->sender != id) refuse_twice("sends", id, action);
      if (letter->receiver < 0) return false;
    }
    int64_t leave_ns = worker.ready_ns;
    if (costs_.credits == 0) {
      if (letter == nullptr) {
        add_letter(mailbox, action.micro_batch.value, Letter::State::Offered).sender = id;
        return false;
      }
      leave_ns = std::max(leave_ns, worker_at(letter->receiver).now_ns);
    } else if (!credits_.acquire(id, receiver, is_backward(mailbox), leave_ns)) {
      return false;
    }
    if (leave_ns > worker.ready_ns) {
      worker.ready_ns = leave_ns;
      events_.push(Event::of_worker(leave_ns, id));
      return false;
    }
    credits_.sent(id, receiver, is_backward(mailbox));
    dispatch(mailbox, action.micro_batch.value, letter, network_.start(id, receiver, static_cast<int32_t>(mailbox / 2)), leave_ns);
    finish(worker, id, leave_ns - worker.now_ns, 0);
    return true;
  }

  void dispatch(size_t mailbox, int64_t micro_batch, Letter* letter, Transit message, int64_t now_ns) {
    int64_t when_ns = 0;
    if (network_.advance(message, now_ns, when_ns)) return deliver(mailbox, micro_batch, letter, message.sender, when_ns);
    if (letter == nullptr) letter = &add_letter(mailbox, micro_batch, Letter::State::Moving);
    letter->state = Letter::State::Moving;
    letter->sender = message.sender;
    waiting_.add({message, micro_batch, mailbox}, when_ns, events_);
  }

  void move_on(size_t slot, int64_t now_ns) {
    Underway under = waiting_.take(slot, events_);
    int64_t when_ns = 0;
    if (!network_.advance(under.transit, now_ns, when_ns)) return waiting_.add(under, when_ns, events_);
    deliver(under.mailbox, under.micro_batch, mailboxes_[under.mailbox].find(under.micro_batch), under.transit.sender, when_ns);
  }

  // The message will have arrived at `arrival_ns`; whoever waits for it goes on.
  void deliver(size_t mailbox, int64_t micro_batch, Letter* letter, int32_t sender, int64_t arrival_ns) {
    if (letter == nullptr) letter = &add_letter(mailbox, micro_batch, Letter::State::Arrived);
    if (letter->receiver >= 0) {
      const int32_t receiver = letter->receiver;
      mailboxes_[mailbox].remove(*letter);
      --in_flight_;
      take(receiver, sender, mailbox, arrival_ns);
      runnable_.push_back(receiver);
      return;
    }
    letter->state = Letter::State::Arrived;
    letter->sender = sender;
    letter->arrival_ns = arrival_ns;
  }

  Letter& add_letter(size_t mailbox, int64_t micro_batch, Letter::State state) {
    if (++in_flight_ > kMaxMessagesInFlight) {
      throw ConfigError(
          fmt::format("more than {} messages wait to be received; simulate fewer micro-batches per step", kMaxMessagesInFlight));
    }
    return mailboxes_[mailbox].insert(micro_batch, state);
  }

  bool receive(Worker& worker, int32_t id) {
    const schedule::Action& action = worker.action;
    const size_t mailbox = mailbox_of(action);
    Letter* letter = mailboxes_[mailbox].find(action.micro_batch.value);
    if (letter == nullptr) {
      add_letter(mailbox, action.micro_batch.value, Letter::State::Expected).receiver = id;
      return false;
    }
    if (letter->receiver >= 0) refuse_twice("receives", id, action);
    if (letter->state != Letter::State::Arrived) {
      letter->receiver = id;
      if (letter->state == Letter::State::Offered) runnable_.push_back(letter->sender);
      return false;
    }
    const int32_t sender = letter->sender;
    const int64_t arrival_ns = letter->arrival_ns;
    mailboxes_[mailbox].remove(*letter);
    --in_flight_;
    take(id, sender, mailbox, arrival_ns);
    return true;
  }

  void take(int32_t id, int32_t sender, size_t mailbox, int64_t arrival_ns) {
    Worker& worker = worker_at(id);
    const int64_t taken_ns = std::max(worker.now_ns, arrival_ns);
    const int32_t waiting_sender = credits_.taken(sender, id, is_backward(mailbox), taken_ns);
    if (waiting_sender >= 0) runnable_.push_back(waiting_sender);
    finish(worker, id, taken_ns - worker.now_ns, 0);
  }

  bool sync(Worker& worker, int32_t id) {
    const schedule::Action& action = worker.action;
    Group& group = groups_[action.stage.index()];
    if (group.arrived > 0 && group.mini_batch != action.mini_batch.value) return false;  // for ever
    group.mini_batch = action.mini_batch.value;
    group.latest_ns = std::max(group.latest_ns, worker.now_ns);
    if (++group.arrived < source_.table().replicas(action.stage)) {
      worker.next_in_group = std::exchange(group.first_waiting, id);
      return false;
    }
    const Group complete = std::exchange(group, {});
    const int64_t sync_ns = costs_.stages[action.stage.index()].sync_ns;
    for (int32_t other = complete.first_waiting; other >= 0;) {
      Worker& waiting = worker_at(other);
      finish(waiting, other, complete.latest_ns - waiting.now_ns, sync_ns);
      runnable_.push_back(other);
      other = waiting.next_in_group;
    }
    finish(worker, id, complete.latest_ns - worker.now_ns, sync_ns);
    return true;
  }

  [[noreturn]] void refuse_twice(std::string_view verb, int32_t worker, const schedule::Action& action) const {
    throw ConfigError(fmt::format("worker {} {} a message that is under way already: {}. Run `penstock verify` on the schedule.", worker,
                                  verb, to_text(action)));
  }

  std::string describe_wait(size_t worker) const {
    const schedule::Action& action = workers_[worker].action;
    const std::string at = fmt::format("worker {} stands at {} and waits for ", worker, to_text(action));
    if (action.op == schedule::Op::SyncGradients) {
      const Group& group = groups_[action.stage.index()];
      return fmt::format("{}the other replicas of stage {} ({} of {} are there)", at, action.stage.value, group.arrived,
                         source_.table().replicas(action.stage));
    }
    const int32_t other = source_.other_end(action);
    if (schedule::is_receive(action.op)) {
      if (other < 0) return at + "a message that no worker sends";
      return fmt::format("{}worker {} to send it", at, other);
    }
    if (other < 0) return at + "a message to be taken that no worker receives";
    return fmt::format("{}worker {} to {}", at, other, costs_.credits == 0 ? "receive it" : "take an earlier message out of the channel");
  }

  [[noreturn]] void fail_deadlocked() const {
    constexpr int kShown = 4;
    int blocked = 0;
    std::string text;
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (!workers_[w].stands) continue;
      if (++blocked <= kShown) text += (blocked == 1 ? "" : "; ") + describe_wait(w);
    }
    if (blocked > kShown) text += fmt::format("; and {} more", blocked - kShown);
    throw ConfigError(
        fmt::format("the schedule deadlocks with {} credits per channel: {}. Run `penstock verify` on it first.", costs_.credits, text));
  }

  Source& source_;
  const Costs& costs_;
  const Options& options_;
  const LinkTable links_;
  Network network_;
  const Variation variation_;
  Credits credits_;
  std::vector<Mailbox> mailboxes_;  ///< of each link forward and backward
  std::vector<Group> groups_;       ///< per stage
  std::vector<Worker> workers_;
  std::vector<int32_t> runnable_;  ///< may go on at once, in any order
  EventQueue events_;
  WaitingMessages waiting_;
  int64_t in_flight_ = 0;
  int64_t done_ = 0;
  std::vector<int64_t> finished_ns_;
  schedule::Timeline timeline_;
};

}  // namespace penstock::simulate::detail
