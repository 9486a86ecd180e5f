// Runs a schedule against costs in simulated time: the prediction to compare a measured run with,
// and a way to study a cluster that one does not have.
//
//   Costs costs = costs_of(plan);
//   // a schedule in memory, with its timeline
//   Result result = simulate(schedule, costs);
//   // the plan's own (simulate_plan.h)
//   Result large = simulate_plan(plan, 10'000, {});
//
// Model: each worker runs its list in order. A message leaves when its send starts and a credit is
// free, passes the links between the two workers, each of which serves its messages in the order in
// which they reach it, and arrives after the latency. The sender continues at once, the receiver
// waits for the arrival. SYNC starts when the last replica has arrived, NORM when the last worker
// has; where the costs have buckets, the sums travel on lanes of their own instead
// (sum_lanes.h). docs/simulator.md lists the assumptions and the known error.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/lazy_schedule.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"
#include "penstock/simulate/costs.h"
#include "penstock/simulate/values.h"

namespace penstock::simulate {

/// Busy time is the time in computations, SYNC, NORM and STEP, without waiting.
struct Result {
  schedule::Timeline timeline;  ///< empty unless Options::keep_timeline
  int64_t makespan_ns = 0;
  /// 1 - busy time / (workers * makespan_ns)
  double idle_share = 0;
  /// Per worker: weight versions, gradients, optimiser state, stashed activations.
  std::vector<int64_t> peak_memory_bytes = {};
  int64_t micro_batches = 0;
  /// Samples / makespan_ns, including fill and drain.
  double throughput_samples_per_s = 0;
  int64_t num_actions = 0;
};

/// Throws ConfigError when `schedule` is not lowered or costs do not match its stages, when a
/// message is on a worker that does not run its micro-batch or is sent twice, above
/// kMaxSimulatedWorkers, when the schedule deadlocks (call verify() first), and for options out of
/// range. O(actions * (levels + log workers)). Pure. Times saturate instead of overflowing.
Result simulate(const schedule::Schedule& schedule, const Costs& costs, const Options& options);
/// The same without variation; keeps the timeline.
Result simulate(const schedule::Schedule& schedule, const Costs& costs);
/// The same for a schedule that is generated while it runs: memory O(workers + links + messages in
/// flight), plus the timeline if it is kept. Throws ConfigError also above kMaxSimulatedActions.
Result simulate(const schedule::LazySchedule& schedule, const Costs& costs, const Options& options);

}  // namespace penstock::simulate
