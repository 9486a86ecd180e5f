// Runs a schedule against costs in simulated time: the prediction that a measured run is compared
// with, and the way to study a cluster that one does not have.
//
//   Costs costs = costs_of(plan);
//   // a schedule in memory, with its timeline
//   Result result = simulate(schedule, costs);
//   // the plan's own (simulate_plan.h)
//   Result large = simulate_plan(plan, 10'000, {});
//
// Model: each worker runs its list in order. A message leaves when its send starts and a credit is
// free, passes the links between the two workers, each of which serves its messages in the order in
// which they reach it, and arrives latency later; the sender goes on at once, the receiver waits
// for the arrival. SYNC starts when the last replica is there, NORM when the last worker is.
// docs/simulator.md lists the assumptions and the known error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/plan/plan.h"
#include "penstock/schedule/lazy_schedule.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"

namespace penstock::simulate {

struct StageCost {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;         ///< B; I takes backward_ns - backward_weight_ns
  int64_t backward_weight_ns = 0;  ///< W
  /// Longer that B or W takes where the worker has gradients of the same mini-batch to add to: from
  /// its second micro-batch of that on.
  int64_t accumulate_ns = 0;
  int64_t step_ns = 0;
  int64_t sync_ns = 0;
  int64_t stash_bytes = 0;
  int64_t weight_bytes = 0;
  int64_t gradient_sets = 1;  ///< that a worker which trains keeps (schedule/gradient_sets.h)
  /// Kept from F to B or W where the schedule recomputes the stage: F then keeps these alone, R the
  /// stash.
  int64_t input_bytes = 0;
  /// Replica k runs on worker first_worker + k of the cluster; -1: right behind the stage before.
  /// Where the schedule has a worker_of_replica, its worker w is the cluster's worker w, and this
  /// is not read.
  int first_worker = -1;
};

struct LinkCost {
  StageId from;
  StageId to;
  int64_t bytes = 0;
};

struct Costs {
  std::vector<StageCost> stages;  ///< per micro-batch
  /// Missing pairs cost nothing but latency; bytes of equal pairs add up.
  std::vector<LinkCost> links;
  /// Of each worker's link, per direction; 0: by reference, messages cost latency only.
  int64_t bandwidth_bytes_per_s = 0;
  int64_t latency_ns = 0;
  /// In place of bandwidth and latency: the levels that messages pass.
  std::optional<cluster::Cluster> cluster;
  int64_t samples_per_micro_batch = 1;
  int64_t credits = 1'000'000;  ///< messages per channel before a send waits
  /// Bytes of optimiser state per weight byte (SGD with momentum 1, Adam 2).
  double optimizer_state_per_weight = 1.0;
};

/// The costs of the plan's stages and links, with its places and its cluster, and with gradients
/// summed in this many groups (schedule/gradient_sets.h; 0: one per replica of each stage). Throws
/// ConfigError for a link to a stage that does not exist; simulate() refuses stages that do not fit
/// on the cluster or share a worker.
Costs costs_of(const plan::Plan& plan, int64_t gradient_groups = 0);

/// Workers that are slower than planned, for the whole run: round(share * workers) of them, drawn
/// by the seed.
struct Stragglers {
  double share = 0;   ///< 0 to 1
  double factor = 1;  ///< by which computations (F, B, I, W, R) and STEP take longer
};

/// A failure of any worker stops all; work since the last checkpoint is done again.
struct Failures {
  /// Mean time between failures of one worker, exponentially distributed; 0: none fails.
  int64_t worker_mtbf_ns = 0;
  int64_t restart_ns = 0;        ///< from a failure until all workers begin again
  int64_t checkpoint_every = 0;  ///< mini-batches; 0: never, so a failure starts the schedule over
  int64_t checkpoint_ns = 0;     ///< each worker pauses that long, once for all of its stages
};

struct Options {
  bool keep_timeline = false;
  uint64_t seed = 1;
  Stragglers stragglers = {};
  /// Every computation and STEP is multiplied by a lognormal number of mean 1; the sigma of its
  /// logarithm.
  double compute_spread = 0;
  Failures failures = {};
  double price_per_worker_hour = 0;
  /// Called from time to time with the number of actions begun and their total.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

/// Busy time is that in computations, SYNC, NORM and STEP, without waiting.
struct Result {
  /// Without failures; empty unless Options::keep_timeline.
  schedule::Timeline timeline;
  int64_t makespan_ns = 0;  ///< failures included
  /// Of the schedule without failures: 1 - busy time / (workers * schedule_ns).
  double idle_share = 0;
  /// Per worker: weight versions, gradients, optimiser state, stashed activations.
  std::vector<int64_t> peak_memory_bytes = {};
  int64_t micro_batches = 0;
  /// Samples / makespan_ns: fill, drain and failures included.
  double throughput_samples_per_s = 0;
  int64_t num_actions = 0;
  int64_t schedule_ns = 0;  ///< of the schedule without failures, checkpoints included
  double useful_share = 0;  ///< busy time that was not done again / (workers * makespan_ns)
  int64_t num_failures = 0;
  int64_t redone_ns = 0;  ///< time whose work was lost
  int64_t down_ns = 0;    ///< from failures until everyone began again
  double cost = 0;        ///< workers * makespan * price
  double cost_per_sample = 0;
};

/// No more workers than this are simulated, nor more actions, nor more messages between being sent
/// and being received.
inline constexpr int kMaxSimulatedWorkers = 1'000'000;
inline constexpr int64_t kMaxSimulatedActions = 10'000'000'000;
inline constexpr int64_t kMaxMessagesInFlight = 20'000'000;

/// Throws ConfigError when `schedule` is not lowered or costs do not match its stages, when a
/// message is on a worker that does not run its micro-batch or is sent twice, above
/// kMaxSimulatedWorkers, and when it deadlocks (verify it first); for options out of range, and
/// when the mean time between failures is so short that no checkpoint is reached. O(actions *
/// (levels + log workers)). Pure. Times saturate instead of overflowing.
Result simulate(const schedule::Schedule& schedule, const Costs& costs, const Options& options);
/// Without variation or failures, the timeline kept.
Result simulate(const schedule::Schedule& schedule, const Costs& costs);
/// The same for a schedule that is generated while it runs: memory O(workers + links + messages in
/// flight), besides the timeline if it is kept and, with failures, 8 bytes per mini-batch. Throws
/// ConfigError also above kMaxSimulatedActions.
Result simulate(const schedule::LazySchedule& schedule, const Costs& costs, const Options& options);

}  // namespace penstock::simulate
