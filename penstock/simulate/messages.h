// Messages between the workers of a simulation, from SEND to RECV; internal to the simulator.
//
// Sends happen in the order of their times, because several may need the same link: they go through
// the event queue, and so do messages that reach their next link later.
//
// A message takes processor time from both ends, which owe it: waiting pays, and what is left makes
// the next computation longer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "penstock/simulate/credits.h"
#include "penstock/simulate/event_queue.h"
#include "penstock/simulate/link_table.h"
#include "penstock/simulate/mailbox_table.h"
#include "penstock/simulate/network.h"
#include "penstock/simulate/refusals.h"
#include "penstock/simulate/sources.h"
#include "penstock/simulate/values.h"
#include "penstock/simulate/waiting_messages.h"
#include "penstock/simulate/workers.h"

namespace penstock::simulate::detail {

template <class Source>
class Messages {
 public:
  using Worker = typename Workers<Source>::Worker;

  /// Keeps references to the workers and the events, and to the source's table.
  Messages(const Source& source, const Costs& costs, Workers<Source>& workers, EventQueue& events)
      : table_(source.table()),
        links_(source.links(), costs, source.shape().num_stages()),
        network_(costs, source.shape(), table_, links_.lane_bytes()),
        rendezvous_(costs.credits == 0),
        credits_(costs.credits, source.most_in_channel()),
        mailboxes_(source.links(), table_),
        waiting_(network_),
        workers_(workers),
        events_(events) {}

  /// How long a NORM takes once all workers have come.
  int64_t norm_ns() const { return network_.sum_ns(); }

  /// The worker comes to a SEND or RECV: notes which lane it uses and who receives.
  void address(Worker& worker) const {
    const schedule::Action& action = worker.action;
    const bool backward =
        action.op == schedule::Op::SendBackward || action.op == schedule::Op::RecvBackward;
    worker.lane = static_cast<int32_t>(2 * links_.find(link_of(action)) + (backward ? 1 : 0));
    const StageId receiving = schedule::is_send(action.op) ? action.peer : action.stage;
    worker.replica = static_cast<int32_t>(action.micro_batch.value % table_.replicas(receiving));
    worker.receiver = table_.worker_of_replica(receiving, worker.replica).value;
  }

  /// Sends when it is the worker's turn; false when it has to wait.
  bool send(Worker& worker, int32_t id) {
    const Event turn = Event::of_worker(worker.ready_ns, id, worker.receiver);
    if (workers_.any_awake() || (!events_.empty() && events_.first().before(turn))) {
      events_.push(turn);
      return false;
    }
    int64_t leave_ns = worker.ready_ns;
    if (!may_leave(worker, id, leave_ns)) return false;
    if (leave_ns > worker.ready_ns) {
      worker.ready_ns = leave_ns;
      events_.push(Event::of_worker(leave_ns, id, worker.receiver));
      return false;
    }
    credits_.sent(id, worker.receiver, worker.lane % 2 == 1);
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
    workers_.finish(worker, id, leave_ns - worker.now_ns, 0);
    worker.owe(network_.processor_ns(message.lane, id, worker.receiver));
    worker.owe(links_.coding_ns(message.lane));
    return true;
  }

  /// False while the message has not been sent.
  bool receive(Worker& worker, int32_t id) {
    Mailbox& mailbox = mailboxes_.at(worker.lane, worker.replica);
    Letter* letter = mailbox.find(worker.action.micro_batch.value);
    worker.awaits = true;
    if (letter == nullptr) return false;
    const Letter found = *letter;
    mailbox.remove(*letter);
    --in_flight_;
    if (found.state == Letter::State::Offered) {
      workers_.wake(found.sender);
      return false;
    }
    take(worker, id, found.sender, found.arrival_ns);
    return true;
  }

  /// The message in `slot` comes to its next link.
  void move_on(size_t slot, int64_t now_ns) {
    Transit message = waiting_.take(slot, events_);
    int64_t when_ns = 0;
    if (!network_.advance(message, now_ns, when_ns)) return waiting_.add(message, when_ns, events_);
    --in_flight_;
    deliver(message, when_ns);
  }

  /// Prefetches the message into the cache.
  void prefetch(size_t slot) const { waiting_.prefetch(slot); }

 private:
  // False while the message has no credit, or no receiver where there are none; the time at which
  // it may leave rises.
  bool may_leave(const Worker& worker, int32_t id, int64_t& leave_ns) {
    if (!rendezvous_) return credits_.acquire(id, worker.receiver, worker.lane % 2 == 1, leave_ns);
    const Worker& receiver = workers_.at(worker.receiver);
    if (!receiver.awaits_message(worker.lane, worker.action.micro_batch)) {
      offer(worker, id);
      return false;
    }
    leave_ns = std::max(leave_ns, receiver.now_ns);
    return true;
  }

  // Rendezvous: stores the sender's number for the receiver.
  void offer(const Worker& worker, int32_t id) {
    insert(worker.lane, worker.replica, id, worker.action.micro_batch.value,
           Letter::State::Offered);
  }

  // The message arrives at `arrival_ns`; a receiver that waits for it continues.
  void deliver(const Transit& message, int64_t arrival_ns) {
    Worker& receiver = workers_.at(message.receiver);
    if (receiver.awaits_message(message.lane, MicroBatchId{message.micro_batch})) {
      take(receiver, message.receiver, message.sender, arrival_ns);
      workers_.wake(message.receiver);
      return;
    }
    insert(message.lane, message.replica, message.sender, message.micro_batch,
           Letter::State::Arrived)
        .arrival_ns = arrival_ns;
  }

  Letter& insert(int32_t lane, int32_t replica, int32_t sender, int64_t micro_batch,
                 Letter::State state) {
    Mailbox& mailbox = mailboxes_.at(lane, replica);
    if (mailbox.find(micro_batch) != nullptr) {
      refuse_second_send(sender, links_.at(static_cast<size_t>(lane / 2)), lane % 2 == 1,
                         micro_batch);
    }
    count_in_flight();
    Letter& letter = mailbox.insert(micro_batch, state);
    letter.sender = sender;
    return letter;
  }

  void count_in_flight() {
    if (++in_flight_ > kMaxMessagesInFlight) refuse_messages_in_flight();
  }

  void take(Worker& worker, int32_t id, int32_t sender, int64_t arrival_ns) {
    const int64_t taken_ns = std::max(worker.now_ns, arrival_ns);
    const int32_t waiting_sender = credits_.taken(sender, id, worker.lane % 2 == 1, taken_ns);
    if (waiting_sender >= 0) workers_.wake(waiting_sender);
    worker.owe(network_.processor_ns(worker.lane, sender, id));
    // Nothing is decoded before it has come.
    workers_.finish(worker, id, taken_ns - worker.now_ns, links_.coding_ns(worker.lane));
  }

  const schedule::WorkerTable& table_;
  const LinkTable links_;
  Network network_;
  const bool rendezvous_;  ///< no message leaves before its receiver has come
  Credits credits_;
  MailboxTable mailboxes_;
  WaitingMessages waiting_;
  int64_t in_flight_ = 0;
  Workers<Source>& workers_;
  EventQueue& events_;
};

}  // namespace penstock::simulate::detail
