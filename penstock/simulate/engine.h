// The event loop; internal to the simulator. Compiled for each source of actions (sources.h).
//
// Every wait except a wait for a link is for one event of another worker (a message, a credit, the
// last worker at a barrier). So a worker continues alone until it has to wait or reaches a send.
// Sends happen in the order of their times, because several may need the same link: they go through
// an event queue, and so do messages that reach their next link later. Ties are broken by worker,
// so the result depends only on the input.
//
// A message takes processor time from both ends, which owe it: waiting pays, and what is left makes
// the next computation longer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/plan/weight_rules.h"
#include "penstock/simulate/credits.h"
#include "penstock/simulate/event_queue.h"
#include "penstock/simulate/host_moves.h"
#include "penstock/simulate/link_table.h"
#include "penstock/simulate/mailbox_table.h"
#include "penstock/simulate/meeting.h"
#include "penstock/simulate/network.h"
#include "penstock/simulate/refusals.h"
#include "penstock/simulate/replica_sums.h"
#include "penstock/simulate/simulator.h"
#include "penstock/simulate/sources.h"
#include "penstock/simulate/sum_lanes.h"
#include "penstock/simulate/variation.h"
#include "penstock/simulate/waiting_messages.h"
#include "penstock/simulate/worker_state.h"
#include "penstock/util/arithmetic.h"

namespace penstock::simulate::detail {

template <class Source>
class Engine {
 public:
  Engine(const Source& source, const Costs& costs, const Options& options)
      : source_(source),
        costs_(costs),
        options_(options),
        links_(source.links(), costs, source.shape().num_stages()),
        network_(costs, source.shape(), source.table(), links_.lane_bytes()),
        variation_(options, source.table().num_workers()),
        credits_(costs.credits, source.most_in_channel()),
        mailboxes_(source.links(), source.table()),
        syncs_(costs.stages.size()),
        workers_(static_cast<size_t>(source.table().num_workers())),
        waiting_(network_),
        moves_(workers_.size(), has_moves(source.shape())),
        lanes_(costs, source.table(), options.keep_timeline),
        sums_(costs, source.shape(), source.table(), lanes_) {
    if (options.keep_timeline) timeline_.workers.resize(workers_.size());
    timeline_.source = "predicted";
    for (size_t s = 0; s < costs.stages.size(); ++s) {
      stages_.emplace_back(costs.stages[s],
                           source.shape().recomputes(StageId{static_cast<int32_t>(s)}),
                           traits(source.shape().policy).newest_only);
    }
    for (size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].cursor = source.cursor(static_cast<int32_t>(w));
      for (const HeldStage& held : source.stages_of(static_cast<int32_t>(w))) {
        workers_[w].memory.add_stage(costs.stages[held.stage.index()], stages_[held.stage.index()],
                                     held.trains, costs.optimizer_state_per_weight);
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
      prefetch(events_.second());
      const Event event = events_.pop();
      if (event.is_worker()) {
        run_worker(event.worker());
      } else if (event.is_lane()) {
        lanes_.move_on(event.lane(), event.time_ns(), events_, runnable_);
      } else {
        move_on(event.slot(), event.time_ns());
      }
    }
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (is_blocked(w)) refuse_deadlock();
    }
    if (options_.keep_timeline) timeline_.sums = lanes_.timeline();
    if (options_.progress) options_.progress(done_, source_.num_actions());
  }

  /// The latest end, and the busy time of all workers.
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
  using Worker = WorkerState<typename Source::Cursor>;

  // On large clusters the workers of one event are far in memory from those of the event before, so
  // they are fetched one event ahead.
  void prefetch(const Event& event) const {
    if (event.is_none() || event.is_lane()) return;
    if (!event.is_worker()) return waiting_.prefetch(event.slot());
    workers_[static_cast<size_t>(event.worker())].prefetch();
    workers_[static_cast<size_t>(event.receiver())].prefetch();
  }

  Worker& worker_at(int32_t worker) { return workers_[static_cast<size_t>(worker)]; }

  // Takes the worker's next action; false when there is none.
  bool begin(Worker& worker) {
    if (!source_.next(worker.cursor, worker.action)) return false;
    worker.has_action = true;
    constexpr int64_t kReportEvery = int64_t{1} << 20;
    if (++done_ % kReportEvery == 0 && options_.progress)
      options_.progress(done_, source_.num_actions());
    const schedule::Action& action = worker.action;
    if (!schedule::is_message(action.op)) return true;
    const bool backward =
        action.op == schedule::Op::SendBackward || action.op == schedule::Op::RecvBackward;
    worker.lane = static_cast<int32_t>(2 * links_.find(link_of(action)) + (backward ? 1 : 0));
    const StageId receiving = schedule::is_send(action.op) ? action.peer : action.stage;
    worker.replica =
        static_cast<int32_t>(action.micro_batch.value % source_.table().replicas(receiving));
    worker.receiver = source_.table().worker_of_replica(receiving, worker.replica).value;
    return true;
  }

  // Runs the worker until it waits, ends, or must let others send first.
  void run_worker(int32_t id) {
    using schedule::Op;
    Worker& worker = worker_at(id);
    for (;;) {
      if (!worker.has_action && !begin(worker)) return take_last_sums(worker, id);
      const Op op = worker.action.op;
      bool went_on = true;
      if (schedule::is_send(op)) {
        went_on = send(worker, id);
      } else if (schedule::is_receive(op)) {
        went_on = receive(worker, id);
      } else if (op == Op::SyncGradients) {
        const StageId stage = worker.action.stage;
        went_on = has_lane(stage)
                      ? sync(worker, id)
                      : meet(worker, id, syncs_[stage.index()], source_.table().replicas(stage),
                             costs_.stages[stage.index()].sync_ns);
      } else if (op == Op::NormGradients) {
        went_on = meet(worker, id, norm_, source_.table().num_workers(), network_.sum_ns());
      } else {
        went_on = work(worker, id);
      }
      if (!went_on) return;
    }
  }

  // Replica k of r has the micro-batches b with b mod r = k, so one of every r consecutive ones.
  bool is_first_of_mini_batch(const schedule::Action& action) const {
    return action.micro_batch.value % source_.shape().accumulate <
           source_.table().replicas(action.stage);
  }

  int64_t planned_ns_of(const schedule::Action& action) const {
    const StageCost& stage = costs_.stages[action.stage.index()];
    const int64_t planned_ns = planned_work_ns(stage, action.op);
    const bool adds = stage.accumulate_ns > 0 && schedule::makes_weight_gradients(action.op) &&
                      !is_first_of_mini_batch(action);
    return adds ? saturating_add(planned_ns, stage.accumulate_ns) : planned_ns;
  }

  bool has_lane(StageId stage) const { return lanes_.any() && lanes_.carries(stage); }

  static bool has_moves(const schedule::ScheduleShape& shape) {
    return std::find(shape.offload.begin(), shape.offload.end(), true) != shape.offload.end();
  }

  // OFFLOAD and LOAD only begin; the first waits for the one before.
  void move(Worker& worker, int32_t id) {
    const schedule::Action action = worker.action;
    const int64_t move_ns = costs_.stages[action.stage.index()].move_ns;
    if (action.op == schedule::Op::Load) {
      finish(worker, id, 0, 0);
      if (moves_.any()) moves_.load(id, action, worker.now_ns, move_ns);
      return;
    }
    const int64_t free_ns = moves_.any() ? moves_.out_free_ns(id) : 0;
    finish(worker, id, std::max<int64_t>(0, free_ns - worker.now_ns), 0);
    if (moves_.any()) moves_.offload(id, action, worker.now_ns, move_ns);
  }

  // F, B, I, W, R, STEP, FREE, OFFLOAD and LOAD; false while a sum is missing.
  bool work(Worker& worker, int32_t id) {
    const schedule::Action& action = worker.action;
    if (action.op == schedule::Op::FreeWeights) {
      finish(worker, id, 0, 0);
      return true;
    }
    if (schedule::is_move(action.op)) {
      move(worker, id);
      return true;
    }
    const int64_t load_ns = moves_.any() && schedule::makes_input_gradients(action.op)
                                ? std::max<int64_t>(0, moves_.ready_ns(id, action) - worker.now_ns)
                                : 0;
    int64_t planned_ns = worker.rest_ns >= 0 ? worker.rest_ns : planned_ns_of(action);
    if (action.with_next) {
      const schedule::Action* other = source_.peek(worker.cursor);
      const SharedTime shared =
          shared_time(planned_ns, other != nullptr ? planned_ns_of(*other) : 0, costs_.overlap);
      planned_ns = shared.first_ns;
      worker.beside_ns = shared.second_ns;
    }
    const int64_t work_ns = variation_.compute_ns(id, action, planned_ns);
    if (has_lane(action.stage)) return work_beside_sums(worker, id, load_ns, work_ns);
    if (action.op == schedule::Op::Step) {
      step(worker, id, 0, work_ns);
    } else {
      finish(worker, id, load_ns, work_ns);
    }
    return true;
  }

  static Moment moment_of(const Worker& worker) {
    return {.now_ns = worker.now_ns, .idle_ns = worker.now_ns - worker.busy_ns - worker.paid_ns};
  }

  // `load_ns`: how long it waits in any case.
  bool work_beside_sums(Worker& worker, int32_t id, int64_t load_ns, int64_t work_ns) {
    const schedule::Action action = worker.action;
    const bool is_step = action.op == schedule::Op::Step;
    if (is_step && sums_.step(action, id, work_ns)) work_ns = 0;
    // A checkpoint needs all of the new weights.
    const bool goes_on = is_step && saves(worker, id)
                             ? sums_.take_all(action.stage, id, moment_of(worker))
                             : sums_.take(action, id, moment_of(worker), work_ns);
    if (!goes_on) return false;
    const TakenSums taken = sums_.taken(action.stage, id);
    if (is_step) {
      step(worker, id, taken.waiting_ns, saturating_add(work_ns, taken.working_ns));
      return true;
    }
    finish(worker, id, saturating_add(load_ns, taken.waiting_ns),
           saturating_add(work_ns, taken.working_ns));
    if (schedule::makes_weight_gradients(action.op))
      sums_.made(action, id, moment_of(worker), work_ns, events_);
    return true;
  }

  bool sync(Worker& worker, int32_t id) {
    const StageId stage = worker.action.stage;
    if (!sums_.sync(worker.action, id, moment_of(worker), events_)) return false;
    const TakenSums taken = sums_.taken(stage, id);
    finish(worker, id, taken.waiting_ns, taken.working_ns);
    return true;
  }

  // At the end of its list the worker takes the sums that no forward pass has needed.
  void take_last_sums(Worker& worker, int32_t id) {
    if (!lanes_.any()) return;
    for (const auto& held : source_.table().held_by(WorkerId{id})) {
      if (!lanes_.carries(held.stage)) continue;
      if (!sums_.take_all(held.stage, id, moment_of(worker))) return;
      const TakenSums taken = sums_.taken(held.stage, id);
      worker.now_ns =
          saturating_add(worker.now_ns, saturating_add(taken.waiting_ns, taken.working_ns));
      worker.busy_ns = saturating_add(worker.busy_ns, taken.working_ns);
    }
  }

  void finish(Worker& worker, int32_t id, int64_t waiting_ns, int64_t working_ns) {
    const int64_t start_ns = worker.now_ns;
    const schedule::Op op = worker.action.op;
    worker.pay_with(waiting_ns);
    if (schedule::is_compute(op) || op == schedule::Op::Step)
      working_ns = saturating_add(working_ns, std::exchange(worker.owed_ns, 0));
    worker.now_ns = saturating_add(saturating_add(start_ns, waiting_ns), working_ns);
    worker.ready_ns = worker.now_ns;
    if (moves_.any() && schedule::makes_input_gradients(op)) moves_.take(id, worker.action);
    worker.has_action = false;
    worker.awaits = false;
    worker.rest_ns = worker.action.with_next ? worker.beside_ns : -1;
    if (!schedule::is_message(op)) {
      worker.busy_ns = saturating_add(worker.busy_ns, worker.now_ns - start_ns - waiting_ns);
      worker.memory.on(worker.action, stages_[worker.action.stage.index()]);
    }
    if (options_.keep_timeline)
      timeline_.workers[static_cast<size_t>(id)].push_back(
          {worker.action, start_ns, worker.now_ns, waiting_ns});
  }

  // A worker saves all of its stages when the last of them has stepped.
  bool saves(const Worker& worker, int32_t id) const {
    const Failures& failures = options_.failures;
    return failures.checkpoint_every > 0 &&
           worker.action.mini_batch.value % failures.checkpoint_every ==
               failures.checkpoint_every - 1 &&
           source_.table().held_by(WorkerId{id}).back().stage == worker.action.stage;
  }

  void step(Worker& worker, int32_t id, int64_t waiting_ns, int64_t step_ns) {
    const int64_t mini_batch = worker.action.mini_batch.value;
    const Failures& failures = options_.failures;
    const int64_t saving_ns = saves(worker, id) ? failures.checkpoint_ns : 0;
    finish(worker, id, saturating_add(waiting_ns, saving_ns), step_ns);
    if (failures.worker_mtbf_ns == 0 || mini_batch >= source_.shape().num_mini_batches()) return;
    const auto index = static_cast<size_t>(mini_batch);
    if (index >= finished_ns_.size()) finished_ns_.resize(index + 1);
    finished_ns_[index] = std::max(finished_ns_[index], worker.now_ns);
  }

  // Sends when it is the worker's turn; false when it has to wait.
  bool send(Worker& worker, int32_t id) {
    const Event turn = Event::of_worker(worker.ready_ns, id, worker.receiver);
    if (!runnable_.empty() || (!events_.empty() && events_.first().before(turn))) {
      events_.push(turn);
      return false;
    }
    const bool backward = worker.lane % 2 == 1;
    int64_t leave_ns = worker.ready_ns;
    if (costs_.credits == 0) {
      const Worker& receiver = worker_at(worker.receiver);
      if (!receiver.awaits_message(worker.lane, worker.action.micro_batch)) {
        offer(worker, id);
        return false;
      }
      leave_ns = std::max(leave_ns, receiver.now_ns);
    } else if (!credits_.acquire(id, worker.receiver, backward, leave_ns)) {
      return false;
    }
    if (leave_ns > worker.ready_ns) {
      worker.ready_ns = leave_ns;
      events_.push(Event::of_worker(leave_ns, id, worker.receiver));
      return false;
    }
    credits_.sent(id, worker.receiver, backward);
    Transit message{.micro_batch = worker.action.micro_batch.value,
                    .sender = id,
                    .receiver = worker.receiver,
                    .lane = worker.lane,
                    .replica = worker.replica,
                    .levels = network_.levels_between(id, worker.receiver)};
    int64_t when_ns = 0;
    if (network_.advance(message, leave_ns, when_ns)) {
      deliver(message, when_ns);
    } else {
      count_in_flight();
      waiting_.add(message, when_ns, events_);
    }
    finish(worker, id, leave_ns - worker.now_ns, 0);
    worker.owe(network_.processor_ns(message.lane, id, worker.receiver));
    return true;
  }

  // Rendezvous: stores the sender's number for the receiver.
  void offer(const Worker& worker, int32_t id) {
    Mailbox& mailbox = mailboxes_.at(worker.lane, worker.replica);
    const int64_t micro_batch = worker.action.micro_batch.value;
    if (mailbox.find(micro_batch) != nullptr) {
      refuse_second_send(id, links_.at(static_cast<size_t>(worker.lane / 2)), worker.lane % 2 == 1,
                         micro_batch);
    }
    count_in_flight();
    mailbox.insert(micro_batch, Letter::State::Offered).sender = id;
  }

  void move_on(size_t slot, int64_t now_ns) {
    Transit message = waiting_.take(slot, events_);
    int64_t when_ns = 0;
    if (!network_.advance(message, now_ns, when_ns)) return waiting_.add(message, when_ns, events_);
    --in_flight_;
    deliver(message, when_ns);
  }

  // The message arrives at `arrival_ns`; a receiver that waits for it continues.
  void deliver(const Transit& message, int64_t arrival_ns) {
    Worker& receiver = worker_at(message.receiver);
    if (receiver.awaits_message(message.lane, MicroBatchId{message.micro_batch})) {
      take(receiver, message.receiver, message.sender, arrival_ns);
      runnable_.push_back(message.receiver);
      return;
    }
    Mailbox& mailbox = mailboxes_.at(message.lane, message.replica);
    if (mailbox.find(message.micro_batch) != nullptr) {
      refuse_second_send(message.sender, links_.at(static_cast<size_t>(message.lane / 2)),
                         message.lane % 2 == 1, message.micro_batch);
    }
    count_in_flight();
    Letter& letter = mailbox.insert(message.micro_batch, Letter::State::Arrived);
    letter.sender = message.sender;
    letter.arrival_ns = arrival_ns;
  }

  void count_in_flight() {
    if (++in_flight_ > kMaxMessagesInFlight) refuse_messages_in_flight();
  }

  bool receive(Worker& worker, int32_t id) {
    Mailbox& mailbox = mailboxes_.at(worker.lane, worker.replica);
    Letter* letter = mailbox.find(worker.action.micro_batch.value);
    worker.awaits = true;
    if (letter == nullptr) return false;
    const Letter found = *letter;
    mailbox.remove(*letter);
    --in_flight_;
    if (found.state == Letter::State::Offered) {
      runnable_.push_back(found.sender);
      return false;
    }
    take(worker, id, found.sender, found.arrival_ns);
    return true;
  }

  void take(Worker& worker, int32_t id, int32_t sender, int64_t arrival_ns) {
    const int64_t taken_ns = std::max(worker.now_ns, arrival_ns);
    const int32_t waiting_sender = credits_.taken(sender, id, worker.lane % 2 == 1, taken_ns);
    if (waiting_sender >= 0) runnable_.push_back(waiting_sender);
    worker.owe(network_.processor_ns(worker.lane, sender, id));
    finish(worker, id, taken_ns - worker.now_ns, 0);
  }

  // SYNC, NORM: waits for the other workers, `size` in total; false unless this worker is the last.
  bool meet(Worker& worker, int32_t id, Meeting& meeting, int32_t size, int64_t duration_ns) {
    if (!meeting.arrive(worker.action.mini_batch, worker.now_ns)) return false;  // waits forever
    if (meeting.arrived < size) {
      worker.next_at_meeting = std::exchange(meeting.first_waiting, id);
      return false;
    }
    const Meeting complete = std::exchange(meeting, {});
    for (int32_t other = complete.first_waiting; other >= 0;) {
      Worker& waiting = worker_at(other);
      finish(waiting, other, complete.latest_ns - waiting.now_ns, duration_ns);
      runnable_.push_back(other);
      other = waiting.next_at_meeting;
    }
    finish(worker, id, complete.latest_ns - worker.now_ns, duration_ns);
    return true;
  }

  // Whether the worker waits, also for sums at the end of its list.
  bool is_blocked(size_t worker) const {
    return workers_[worker].has_action || awaits_sums(worker);
  }
  bool awaits_sums(size_t worker) const {
    if (!lanes_.any()) return false;
    const int32_t id = static_cast<int32_t>(worker);
    const auto held = source_.table().held_by(WorkerId{id});
    return std::any_of(held.begin(), held.end(), [&](const auto& unit) {
      return lanes_.carries(unit.stage) && sums_.are_due(unit.stage, id);
    });
  }

  [[noreturn]] void refuse_deadlock() const {
    std::vector<BlockedWorker> shown;
    int64_t blocked = 0;
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (!is_blocked(w) || ++blocked > kShownWorkers) continue;
      const schedule::Action& action = workers_[w].action;
      const auto id = static_cast<int32_t>(w);
      const bool sums = has_lane(action.stage) && sums_.are_due(action.stage, id) &&
                        !schedule::is_message(action.op);
      const bool sync = sums || action.op == schedule::Op::SyncGradients;
      const int32_t met =
          sums ? sums_.given(action.stage, id) : syncs_[action.stage.index()].arrived;
      shown.push_back(
          {.worker = static_cast<int32_t>(w),
           .action = action,
           .other_end = schedule::is_message(action.op) ? source_.other_end(action) : -1,
           .arrived = sync ? met : norm_.arrived,
           .expected =
               sync ? source_.table().replicas(action.stage) : source_.table().num_workers()});
    }
    simulate::detail::refuse_deadlock(shown, blocked, costs_.credits);
  }

  const Source& source_;
  const Costs& costs_;
  const Options& options_;
  const LinkTable links_;
  Network network_;
  const Variation variation_;
  Credits credits_;
  MailboxTable mailboxes_;
  std::vector<StageMemory> stages_;
  std::vector<Meeting> syncs_;  ///< per stage
  Meeting norm_;
  std::vector<Worker> workers_;
  std::vector<int32_t> runnable_;  ///< may continue at once, in any order
  EventQueue events_;
  WaitingMessages waiting_;
  int64_t in_flight_ = 0;
  int64_t done_ = 0;
  std::vector<int64_t> finished_ns_;
  schedule::Timeline timeline_;
  HostMoves moves_;
  SumLanes lanes_;
  ReplicaSums sums_;
};

}  // namespace penstock::simulate::detail
