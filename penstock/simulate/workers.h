// The workers of a simulation: what each of them is at, when, and what it has in memory; internal
// to the simulator. Compiled for each source of actions (sources.h).
//
//   Workers<Source>::Worker& worker = workers.at(id);
//   workers.finish(worker, id, waiting_ns, working_ns);  // its action ends
//   workers.wake(other);                                 // may continue at once
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/schedule/timeline.h"
#include "penstock/simulate/host_moves.h"
#include "penstock/simulate/memory.h"
#include "penstock/simulate/sources.h"
#include "penstock/simulate/values.h"
#include "penstock/simulate/worker_state.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate::detail {

template <class Source>
class Workers {
 public:
  using Worker = WorkerState<typename Source::Cursor>;

  /// Keeps a reference to the options.
  Workers(const Source& source, const Costs& costs, const Options& options)
      : options_(options),
        workers_(static_cast<size_t>(source.table().num_workers())),
        moves_(workers_.size(), has_moves(source.shape())) {
    if (options.keep_timeline) timeline_.workers.resize(workers_.size());
    timeline_.source = "predicted";
    stages_ = stage_memories(source.shape(), costs.stages);
    for (size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].cursor = source.cursor(static_cast<int32_t>(w));
      for (const HeldStage& held : source.stages_of(static_cast<int32_t>(w))) {
        const StageCost& stage = costs.stages[held.stage.index()];
        workers_[w].memory.add_stage(
            held.stage, stage, stages_[held.stage.index()], held.trains,
            counts_weights(stage, source.table(), held.stage, static_cast<int32_t>(w)),
            costs.optimizer_state_per_weight);
      }
    }
  }

  int32_t size() const { return static_cast<int32_t>(workers_.size()); }
  Worker& at(int32_t worker) { return workers_[static_cast<size_t>(worker)]; }
  const Worker& at(int32_t worker) const { return workers_[static_cast<size_t>(worker)]; }

  /// The worker's action ends, after it has waited and worked for so long.
  void finish(Worker& worker, int32_t id, int64_t waiting_ns, int64_t working_ns) {
    const int64_t start_ns = worker.now_ns;
    const int64_t met_ns = std::exchange(worker.met_ns, 0);
    worker.together = false;
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
    if (options_.keep_timeline && (!options_.keeps || options_.keeps(worker.action)))
      timeline_.workers[static_cast<size_t>(id)].push_back(
          {worker.action, start_ns - met_ns, worker.now_ns, waiting_ns + met_ns});
  }

  /// The worker waits for its team until then, with its action still to be done.
  void wait_for_team(Worker& worker, int64_t until_ns) {
    worker.met_ns = until_ns - worker.now_ns;
    worker.pay_with(worker.met_ns);
    worker.now_ns = until_ns;
    worker.together = true;
  }

  /// Workers that may continue at once, in any order.
  void wake(int32_t worker) { awake_.push_back(worker); }
  bool any_awake() const { return !awake_.empty(); }
  int32_t take_awake() {
    const int32_t worker = awake_.back();
    awake_.pop_back();
    return worker;
  }
  std::vector<int32_t>& awake() { return awake_; }

  HostMoves& moves() { return moves_; }
  schedule::Timeline& timeline() { return timeline_; }

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

 private:
  static bool has_moves(const schedule::ScheduleShape& shape) {
    return std::find(shape.offload.begin(), shape.offload.end(), true) != shape.offload.end();
  }

  const Options& options_;
  std::vector<Worker> workers_;
  std::vector<StageMemory> stages_;
  std::vector<int32_t> awake_;
  HostMoves moves_;
  schedule::Timeline timeline_;
};

}  // namespace penstock::simulate::detail
