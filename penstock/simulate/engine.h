// The event loop; internal to the simulator. Compiled for each source of actions (sources.h).
//
// Every wait except a wait for a link is for one event of another worker (a message, a credit, the
// last worker at a barrier). So a worker continues alone until it has to wait or reaches a send.
// Sends, and messages that reach their next link later, go through an event queue (messages.h).
// Ties are broken by worker, so the result depends only on the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/simulate/computations.h"
#include "penstock/simulate/event_queue.h"
#include "penstock/simulate/meetings.h"
#include "penstock/simulate/messages.h"
#include "penstock/simulate/refusals.h"
#include "penstock/simulate/values.h"
#include "penstock/simulate/workers.h"

namespace penstock::simulate::detail {

template <class Source>
class Engine {
 public:
  /// Keeps references.
  Engine(const Source& source, const Costs& costs, const Options& options)
      : source_(source),
        costs_(costs),
        options_(options),
        workers_(source, costs, options),
        messages_(source, costs, workers_, events_),
        computations_(source, costs, options, workers_, events_),
        meetings_(source, costs, messages_.norm_ns(), workers_) {}

  void run() {
    for (int32_t w = workers_.size(); w > 0; --w) workers_.wake(w - 1);
    for (;;) {
      while (workers_.any_awake()) run_worker(workers_.take_awake());
      if (events_.empty()) break;
      prefetch(events_.second());
      const Event event = events_.pop();
      if (event.is_worker()) {
        run_worker(event.worker());
      } else if (event.is_lane()) {
        computations_.move_on(event.lane(), event.time_ns());
      } else {
        messages_.move_on(event.slot(), event.time_ns());
      }
    }
    for (int32_t w = 0; w < workers_.size(); ++w) {
      if (is_blocked(w)) refuse_deadlock();
    }
    if (options_.keep_timeline) workers_.timeline().sums = computations_.timeline();
    if (options_.progress) options_.progress(done_, source_.num_actions());
  }

  /// What has come of it.
  Workers<Source>& workers() { return workers_; }

 private:
  using Worker = typename Workers<Source>::Worker;

  // On large clusters the workers of one event are far in memory from those of the event before, so
  // they are fetched one event ahead.
  void prefetch(const Event& event) const {
    if (event.is_none() || event.is_lane()) return;
    if (!event.is_worker()) return messages_.prefetch(event.slot());
    workers_.at(event.worker()).prefetch();
    workers_.at(event.receiver()).prefetch();
  }

  // Takes the worker's next action; false when there is none.
  bool begin(Worker& worker) {
    if (!source_.next(worker.cursor, worker.action)) return false;
    worker.has_action = true;
    constexpr int64_t kReportEvery = int64_t{1} << 20;
    if (++done_ % kReportEvery == 0 && options_.progress)
      options_.progress(done_, source_.num_actions());
    if (schedule::is_message(worker.action.op)) messages_.address(worker);
    return true;
  }

  // Runs the worker until it waits, ends, or must let others send first.
  void run_worker(int32_t id) {
    using schedule::Op;
    Worker& worker = workers_.at(id);
    for (;;) {
      if (!worker.has_action && !begin(worker)) return computations_.take_last_sums(worker, id);
      const Op op = worker.action.op;
      bool went_on = true;
      if (schedule::is_send(op)) {
        went_on = messages_.send(worker, id);
      } else if (schedule::is_receive(op)) {
        went_on = messages_.receive(worker, id);
      } else if (op == Op::SyncGradients) {
        went_on = computations_.has_lane(worker.action.stage) ? computations_.sync(worker, id)
                                                              : meetings_.sync(worker, id);
      } else if (op == Op::NormGradients) {
        went_on = meetings_.norm(worker, id);
      } else if (meetings_.meets_team(worker) && !meetings_.team(worker, id)) {
        went_on = false;
      } else {
        went_on = computations_.work(worker, id);
      }
      if (!went_on) return;
    }
  }

  // Whether the worker waits, also for sums at the end of its list.
  bool is_blocked(int32_t worker) const {
    return workers_.at(worker).has_action || computations_.awaits_sums(worker);
  }

  BlockedWorker described(int32_t worker) const {
    const schedule::Action& action = workers_.at(worker).action;
    BlockedWorker blocked{.worker = worker, .action = action};
    if (schedule::is_message(action.op)) blocked.other_end = source_.other_end(action);
    const bool sums = computations_.awaits_sums(action, worker);
    if (schedule::is_compute(action.op) && meetings_.meets_team(workers_.at(worker))) {
      blocked.team = true;
      blocked.arrived = meetings_.at_team(action.stage, worker);
      blocked.expected = meetings_.team_size(action.stage);
    } else if (sums || action.op == schedule::Op::SyncGradients) {
      blocked.arrived =
          sums ? computations_.given(action.stage, worker) : meetings_.at_sync(action.stage);
      blocked.expected = source_.table().replicas(action.stage);
    } else {
      blocked.arrived = meetings_.at_norm();
      blocked.expected = source_.table().num_workers();
    }
    return blocked;
  }

  [[noreturn]] void refuse_deadlock() const {
    std::vector<BlockedWorker> shown;
    int64_t blocked = 0;
    for (int32_t w = 0; w < workers_.size(); ++w) {
      if (is_blocked(w) && ++blocked <= kShownWorkers) shown.push_back(described(w));
    }
    simulate::detail::refuse_deadlock(shown, blocked, costs_.credits);
  }

  const Source& source_;
  const Costs& costs_;
  const Options& options_;
  EventQueue events_;
  Workers<Source> workers_;
  Messages<Source> messages_;
  Computations<Source> computations_;
  Meetings<Source> meetings_;
  int64_t done_ = 0;
};

}  // namespace penstock::simulate::detail
