// What the workers of a simulation do between messages: computations, steps, moves to the host, and
// sums of gradients that travel meanwhile; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/schedule/team_places.h"
#include "penstock/schedule/timeline.h"
#include "penstock/simulate/event_queue.h"
#include "penstock/simulate/replica_sums.h"
#include "penstock/simulate/sum_lanes.h"
#include "penstock/simulate/values.h"
#include "penstock/simulate/variation.h"
#include "penstock/simulate/workers.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate::detail {

template <class Source>
class Computations {
 public:
  using Worker = typename Workers<Source>::Worker;

  /// Keeps references.
  Computations(const Source& source, const Costs& costs, const Options& options,
               Workers<Source>& workers, EventQueue& events)
      : source_(source),
        costs_(costs),
        places_(source.shape().teams),
        variation_(options, source.table().num_workers()),
        lanes_(costs, source.table(), options.keep_timeline),
        sums_(costs, source.shape(), source.table(), lanes_),
        workers_(workers),
        events_(events) {}

  /// Whether the stage's sums travel while its replicas compute.
  bool has_lane(StageId stage) const { return lanes_.any() && lanes_.carries(stage); }

  /// F, B, I, W, R, STEP, FREE, OFFLOAD and LOAD; false while a sum is missing.
  bool work(Worker& worker, int32_t id) {
    const schedule::Action& action = worker.action;
    if (action.op == schedule::Op::FreeWeights) {
      workers_.finish(worker, id, 0, 0);
      return true;
    }
    if (schedule::is_move(action.op)) {
      move(worker, id);
      return true;
    }
    HostMoves& moves = workers_.moves();
    const int64_t load_ns = moves.any() && schedule::makes_input_gradients(action.op)
                                ? std::max<int64_t>(0, moves.ready_ns(id, action) - worker.now_ns)
                                : 0;
    const int64_t work_ns = varied_ns(worker, id);
    if (has_lane(action.stage)) return work_beside_sums(worker, id, load_ns, work_ns);
    workers_.finish(worker, id, load_ns, work_ns);
    return true;
  }

  /// SYNC of a stage whose sums travel on a lane; false while the worker has to wait for one.
  bool sync(Worker& worker, int32_t id) {
    const StageId stage = worker.action.stage;
    if (!sums_.sync(worker.action, id, moment_of(worker), events_)) return false;
    const TakenSums taken = sums_.taken(stage, id);
    workers_.finish(worker, id, taken.waiting_ns, taken.working_ns);
    return true;
  }

  /// At the end of its list the worker takes the sums that no forward pass has needed.
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

  /// An event of a lane has come.
  void move_on(int32_t lane, int64_t now_ns) {
    lanes_.move_on(lane, now_ns, events_, workers_.awake());
  }

  /// Whether the worker's list is at its end but not all of its sums have come.
  bool awaits_sums(int32_t id) const {
    if (!lanes_.any()) return false;
    const auto held = source_.table().held_by(WorkerId{id});
    return std::any_of(held.begin(), held.end(), [&](const auto& unit) {
      return lanes_.carries(unit.stage) && sums_.are_due(unit.stage, id);
    });
  }
  /// Whether the action waits for sums of its stage, and how many replicas have given their part.
  bool awaits_sums(const schedule::Action& action, int32_t id) const {
    return has_lane(action.stage) && sums_.are_due(action.stage, id) &&
           !schedule::is_message(action.op);
  }
  int32_t given(StageId stage, int32_t id) const { return sums_.given(stage, id); }

  std::vector<schedule::SumLane> timeline() const { return lanes_.timeline(); }

 private:
  static Moment moment_of(const Worker& worker) {
    return {.now_ns = worker.now_ns, .idle_ns = worker.now_ns - worker.busy_ns - worker.paid_ns};
  }

  // Replica k of r has the micro-batches b with b mod r = k, so one of every r consecutive ones.
  bool is_first_of_mini_batch(const schedule::Action& action) const {
    return action.micro_batch.value % source_.shape().accumulate <
           source_.table().replicas(action.stage);
  }

  // Of the action as if it ran alone.
  int64_t alone_ns(const schedule::Action& action) const {
    const StageCost& stage = costs_.stages[action.stage.index()];
    const int64_t planned_ns = planned_work_ns(stage, action.op);
    const bool adds = stage.accumulate_ns > 0 && schedule::makes_weight_gradients(action.op) &&
                      !is_first_of_mini_batch(action);
    return adds ? saturating_add(planned_ns, stage.accumulate_ns) : planned_ns;
  }

  // Of the worker's action; notes what is left for the one that runs together with it.
  int64_t planned_ns(Worker& worker) const {
    const int64_t planned_ns = worker.rest_ns >= 0 ? worker.rest_ns : alone_ns(worker.action);
    if (!worker.action.with_next) return planned_ns;
    const schedule::Action* other = source_.peek(worker.cursor);
    const SharedTime shared =
        shared_time(planned_ns, other != nullptr ? alone_ns(*other) : 0, costs_.overlap);
    worker.beside_ns = shared.second_ns;
    return shared.first_ns;
  }

  // How long the worker's action takes it; with sums of a team inside, the slowest member.
  int64_t varied_ns(Worker& worker, int32_t id) {
    const schedule::Action& action = worker.action;
    const int64_t planned = planned_ns(worker);
    if (!worker.together || !variation_.active()) return variation_.compute_ns(id, action, planned);
    const schedule::TeamPlace place = places_.of(action.stage);
    const int replica = source_.table().replica_on(WorkerId{id}, action.stage);
    int64_t slowest_ns = 0;
    for (int m = 0; m < place.size; ++m) {
      schedule::Action other = action;
      other.stage = other.peer = StageId{place.first.value + m};
      const int32_t worker_of_other = source_.table().worker_of_replica(other.stage, replica).value;
      slowest_ns = std::max(slowest_ns, variation_.compute_ns(worker_of_other, other, planned));
    }
    return slowest_ns;
  }

  // OFFLOAD and LOAD only begin; the first waits for the one before.
  void move(Worker& worker, int32_t id) {
    const schedule::Action action = worker.action;
    const int64_t move_ns = costs_.stages[action.stage.index()].move_ns;
    HostMoves& moves = workers_.moves();
    if (action.op == schedule::Op::Load) {
      workers_.finish(worker, id, 0, 0);
      if (moves.any()) moves.load(id, action, worker.now_ns, move_ns);
      return;
    }
    const int64_t free_ns = moves.any() ? moves.out_free_ns(id) : 0;
    workers_.finish(worker, id, std::max<int64_t>(0, free_ns - worker.now_ns), 0);
    if (moves.any()) moves.offload(id, action, worker.now_ns, move_ns);
  }

  // `load_ns`: how long it waits in any case.
  bool work_beside_sums(Worker& worker, int32_t id, int64_t load_ns, int64_t work_ns) {
    const schedule::Action action = worker.action;
    if (action.op == schedule::Op::Step && sums_.step(action, id, work_ns)) work_ns = 0;
    if (!sums_.take(action, id, moment_of(worker), work_ns)) return false;
    const TakenSums taken = sums_.taken(action.stage, id);
    workers_.finish(worker, id, saturating_add(load_ns, taken.waiting_ns),
                    saturating_add(work_ns, taken.working_ns));
    if (schedule::makes_weight_gradients(action.op))
      sums_.made(action, id, moment_of(worker), work_ns, events_);
    return true;
  }

  const Source& source_;
  const Costs& costs_;
  schedule::TeamPlaces places_;
  const Variation variation_;
  SumLanes lanes_;
  ReplicaSums sums_;
  Workers<Source>& workers_;
  EventQueue& events_;
};

}  // namespace penstock::simulate::detail
