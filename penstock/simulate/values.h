// What is simulated, as values: the costs of stages and links, what varies, and how much there may
// be.
//
//   Costs costs;
//   costs.stages = {{.forward_ns = 30, .backward_ns = 60, .step_ns = 10}};
//   costs.latency_ns = 20;
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/plan/plan.h"
#include "penstock/schedule/action.h"
#include "penstock/util/ids.h"

namespace penstock::simulate {

struct StageCost {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;         ///< B; I takes backward_ns - backward_weight_ns
  int64_t backward_weight_ns = 0;  ///< W
  /// Additional time of B or W where the worker adds to gradients of the same mini-batch: from its
  /// second micro-batch of the mini-batch on.
  int64_t accumulate_ns = 0;
  int64_t step_ns = 0;
  int64_t sync_ns = 0;
  /// Sums that travel while workers compute, and how long each needs to arrive
  /// (plan::Stage::buckets). Empty: SYNC waits for `sync_ns`.
  std::vector<plan::GradientBucket> buckets = {};
  int64_t sync_latency_ns = 0;
  bool waits_for_sums = false;  ///< SYNC does, and not the next forward pass
  int64_t stash_bytes = 0;
  int64_t weight_bytes = 0;
  int state_parts = 1;        ///< plan::Stage::state_parts(); of `step_ns` a worker takes its part
  int64_t gradient_sets = 1;  ///< sets that a training worker keeps (schedule/gradient_sets.h)
  /// Kept from F to B or W where the schedule recomputes the stage: then F keeps only these, and R
  /// keeps the stash.
  int64_t input_bytes = 0;
  /// How long the stash of a micro-batch takes to the memory of the host, and as long back, where
  /// the schedule offloads the stage.
  int64_t move_ns = 0;
  /// Replica k runs on worker first_worker + k of the cluster; -1: directly after the stage before.
  /// Where the schedule has a worker_of_replica, its worker w is the cluster's worker w, and this
  /// is not read. With teams (ScheduleShape::teams) that is so only where workers hold several
  /// stages; otherwise member m of replica k of t members runs on worker first_worker + k t + m,
  /// and the stages of all members say the same.
  int first_worker = -1;
  int64_t short_weight_bytes = 0;               ///< plan::Stage
  int64_t constant_bytes = 0;                   ///< plan::Stage
  int64_t working_bytes = 0;                    ///< plan::Stage
  std::optional<plan::PassMemory> passes = {};  ///< plan::Stage
  bool shares_weights = false;                  ///< plan::Stage
};

struct LinkCost {
  StageId from;
  StageId to;
  int64_t bytes = 0;
  std::optional<int64_t> gradient_bytes = {};  ///< plan::Link
  /// What a message takes from the worker at each end, where it is coded.
  int64_t coding_ns = 0;
  int64_t coding_back_ns = 0;

  int64_t bytes_back() const { return gradient_bytes.value_or(bytes); }
};

struct Costs {
  std::vector<StageCost> stages;  ///< per micro-batch
  /// Missing pairs cost only latency; bytes of equal pairs are added up.
  std::vector<LinkCost> links;
  /// Of each worker's link, per direction; 0: by reference, messages cost only latency.
  int64_t bandwidth_bytes_per_s = 0;
  int64_t latency_ns = 0;
  /// Replaces bandwidth and latency: the levels that messages pass.
  std::optional<cluster::Cluster> cluster;
  /// Of an F and a B or I that run together (schedule::Action::with_next): the share of the shorter
  /// one's time that passes beside the longer one. 0: the two take the sum of their times, 1: the
  /// longer one's.
  double overlap = 0;
  int64_t samples_per_micro_batch = 1;
  int64_t credits = 1'000'000;  ///< messages per channel before a send waits
  /// Bytes of optimiser state per weight byte (SGD with momentum 1, Adam 2).
  double optimizer_state_per_weight = 1.0;
};

/// Workers that are slower than planned, for the whole run: round(share * workers) of them, drawn
/// by the seed.
struct Stragglers {
  double share = 0;   ///< 0 to 1
  double factor = 1;  ///< by which computations (F, B, I, W, R) and STEP take longer
};

struct Options {
  bool keep_timeline = false;
  /// Which actions the timeline keeps; empty: all. Those of one kind need a fraction of the memory.
  std::function<bool(const schedule::Action& action)> keeps = {};
  uint64_t seed = 1;
  Stragglers stragglers = {};
  /// Every computation and STEP is multiplied by a lognormal number of mean 1; the sigma of its
  /// logarithm.
  double compute_spread = 0;
  /// How long a computation is that varies so. Others vary as if each stretch of their time did on
  /// its own: their variance is as their length. 0: all vary alike.
  int64_t compute_spread_at_ns = 0;
  /// Called repeatedly with the number of actions begun and their total.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

/// The maximum of workers, of actions, and of messages sent but not yet received.
inline constexpr int kMaxSimulatedWorkers = 1'000'000;
inline constexpr int64_t kMaxSimulatedActions = 10'000'000'000;
inline constexpr int64_t kMaxMessagesInFlight = 20'000'000;

}  // namespace penstock::simulate
