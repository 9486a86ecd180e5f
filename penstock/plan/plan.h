// The planner's output, a value: stages, replicas, schedule kind, weight policy, and what all that
// is predicted to cost.
//
//   Plan plan = load_plan("plan.json");  // plan.config() == "7-1"
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/graph/model_graph.h"
#include "penstock/plan/boundary_coding.h"
#include "penstock/plan/compensation.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/strategy.h"
#include "penstock/plan/weight_policy.h"
#include "penstock/util/numbers/precision.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::plan {

/// What gradients of weights and a backward pass need together, at their most, beside what
/// micro-batches keep and beside messages, on a CPU. A mini-batch begins without gradients. Its
/// passes make them layer by layer, from the last layer to the first.
struct PassMemory {
  int64_t first_bytes = 0;  ///< the first of several passes of a mini-batch
  int64_t last_bytes = 0;   ///< the last of several
  int64_t only_bytes = 0;   ///< the only one
  /// Weights are stepped within the last pass, as soon as their gradients are made, so that none
  /// are left (docs/weights.md, "Steps during the backward pass"). Where a run cannot do so, as
  /// with a norm, the last pass needs all gradients and `working_bytes`, the only one
  /// `first_bytes`.
  bool steps = false;

  bool operator==(const PassMemory&) const = default;
};

/// One stage; times in ns and sizes in bytes for one micro-batch of Plan::micro_batch_size samples
/// on one worker.
struct Stage {
  std::vector<std::string> layers;  ///< names, in topological order
  int replicas = 1;
  /// Members of each replica's team, each on a worker of its own with a part of the weights (tensor
  /// parallelism). Times and sizes are of one member; those of a team's collectives are in
  /// forward_ns and backward_ns.
  int tensor = 1;
  /// Between the layers whose weights its teams share out, members have a part of the places of
  /// sequences (sequence parallelism, Korthikanti et al. 2022).
  bool sequence = false;
  /// What one member sends to its team for one micro-batch, in both passes.
  int64_t team_bytes = 0;
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;
  /// The part of backward_ns that makes the weights' gradients (action W); 0 when not known.
  int64_t backward_weight_ns = 0;
  /// Adding one micro-batch's gradients to the sum of a worker's earlier ones of the same step.
  int64_t accumulate_ns = 0;
  int64_t step_ns = 0;  ///< one optimiser step
  /// One gradient synchronisation over the replicas, 0 without replicas. Where they add once per
  /// round of several steps (Plan::sync_every): the part of one step.
  int64_t sync_ns = 0;
  int64_t weight_bytes = 0;
  int64_t stash_bytes = 0;  ///< one micro-batch, from forward to backward
  /// Predicted peak on one worker, of all its stages: versions, gradients, optimiser state, stashes
  /// in flight.
  int64_t memory_bytes = 0;
  /// Member m of replica k runs on worker first_worker + k * tensor + m of the cluster, -1 when the
  /// plan names no places (version 1 of the file) or names them in Plan::worker_of_replica.
  int first_worker = -1;
  /// Activations are not kept: the forward pass is run again (action R, forward_ns; not part of
  /// backward_ns).
  bool recompute = false;
  /// Activations are moved to the memory of the host between F and B (actions OFFLOAD and LOAD),
  /// each way in move_ns.
  bool offload = false;
  int64_t move_ns = 0;
  /// Where computation can hide a part of sync_ns: the sums of these, in the order of the layers,
  /// take sync_ns together, `sync_latency_ns` included, which each of them needs to arrive. Empty:
  /// SYNC waits for all of it, as between threads of one process.
  std::vector<GradientBucket> buckets = {};
  int64_t sync_latency_ns = 0;
  /// SYNC waits for the buckets, too: the stage uses a weight twice.
  bool waits_for_sums = false;
  /// The replicas share out the optimiser's state (ZeRO stage 1): each keeps and steps its share of
  /// the weights, and they gather the stepped ones. `step_ns` is that of all weights nevertheless.
  bool shard_optimizer = false;
  /// The part of weight_bytes whose versions have 16 bits (profile::LayerCost).
  int64_t short_weight_bytes = 0;
  /// Frozen weights, constants and buffers of the layers: once on each replica.
  int64_t constant_bytes = 0;
  /// What a backward pass needs at its most, beyond what its micro-batch has kept and beyond
  /// messages, one each way with each neighbour: gradients of values and weights
  /// (profile::LayerCost::working_bytes).
  int64_t working_bytes = 0;
  /// Nothing: all gradients are counted at all times, and `working_bytes` with each pass.
  std::optional<PassMemory> passes = {};
  /// The replicas are threads of one process, which have their weights once and share out the
  /// optimiser's state (docs/weights.md, "Replicas of one process").
  bool shares_weights = false;
  /// Gradients of replicas in other processes that wait for those of this one, on a CPU: from none,
  /// where it is the first to make them, to as much again, where it is the last.
  int64_t waiting_bytes = 0;
  /// Zb-auto and zb-auto-v: micro-batches that each of its workers keeps at most from F to W,
  /// summed over the worker's stages; 0: the kind's own number.
  int64_t keep = 0;

  /// Into how many parts the optimiser's state is shared out, at the price of a gathering.
  int state_parts() const { return shard_optimizer ? replicas : 1; }
  /// Of how many parts a replica keeps one in memory.
  int kept_state_parts() const { return shard_optimizer || shares_weights ? replicas : 1; }
  int64_t compute_ns() const { return forward_ns + backward_ns; }
  /// What a worker computes for one micro-batch: compute_ns(), and the forward pass once more where
  /// the stage recomputes. Saturates.
  int64_t work_ns() const;
  bool operator==(const Stage&) const = default;
};

/// Tensors between two stages for one micro-batch; gradients flow back with the same size. Sizes
/// are those of the tensors as stages compute them: boundaries.h says what travels of them.
struct Link {
  StageId from;
  StageId to;
  int64_t bytes = 0;
  /// Of the gradients that come back; nothing: as many. Fewer where no weight is behind a value.
  std::optional<int64_t> gradient_bytes = {};
  BoundaryCoding coding = {};  ///< of both ways
  int64_t width = 0;           ///< CodedValues::width

  int64_t bytes_back() const { return gradient_bytes.value_or(bytes); }
  bool operator==(const Link&) const = default;
};

struct Alternative {
  Strategy strategy = Strategy::Serial;
  std::string config;  ///< "2", "1-1"
  double throughput_samples_per_s = 0;
  std::optional<WeightPolicy> weights = {};  ///< nothing in files of version 1
  int64_t micro_batches = 0;
  int64_t latency_ns = 0;    ///< from a micro-batch's first forward to the end of its step
  int64_t memory_bytes = 0;  ///< of the worker that needs most
  double idle_share = 0;
  std::vector<double> bytes_per_sample = {};  ///< through each level of the cluster
  /// Why it is not the winner, or why there is no such plan.
  std::string note = {};
  bool operator==(const Alternative&) const = default;
};

/// What a plan is expected to cost. Zero: not known.
struct Prediction {
  /// Time per micro-batch of the slowest stage or link, under Explanation::cost_model.
  int64_t bottleneck_ns = 0;
  double throughput_samples_per_s = 0;  ///< by simulating the schedule
  /// Relative standard deviation of what a worker computes for one micro-batch, and standard error
  /// of its mean (profile::PassTimes).
  double compute_spread = 0;
  double compute_error = 0;
  /// Between which a run is expected to lie (plan/interval.h).
  double throughput_low_samples_per_s = 0;
  double throughput_high_samples_per_s = 0;
  /// From a micro-batch's first forward to the end of its step, in steady state.
  int64_t latency_ns = 0;
  double idle_share = 0;
  /// Through each level of the cluster, both directions, gradient synchronisation included.
  std::vector<double> bytes_per_sample;
  bool operator==(const Prediction&) const = default;
};

/// Why it is this plan.
struct Explanation {
  std::string cost_model;  ///< the cost model that chose it
  /// Share by which the bottleneck may exceed the optimum; 0: proven optimal.
  double optimality_gap = 0;
  std::vector<Alternative> alternatives;
  std::vector<std::string> notes;  ///< for people: why this plan, what was left out
  bool operator==(const Explanation&) const = default;
};

/// The decision, with what it is expected to cost and why it was taken.
struct Plan {
  std::string model;
  Strategy strategy = Strategy::Serial;  ///< one that has a schedule of its own
  WeightPolicy weights = WeightPolicy::Flush;
  Compensation compensation = Compensation::None;  ///< of the delays that `weights` brings
  int64_t micro_batch_size = 1;
  int64_t micro_batches = 1;  ///< per mini-batch (optimiser step)
  int64_t depth = 1;          ///< micro-batches in flight per replica of the input stage
  /// The worker of the cluster that holds each replica, stage by stage, where workers hold several
  /// stages (interleaved, zb-v, ...); otherwise empty. With teams: the number of the team, which
  /// holds several stages then; its members are the workers behind those of the teams before it.
  std::vector<int> worker_of_replica;
  /// Eager-1f1b: micro-batches in flight beyond 1F1B's for each stage behind.
  int64_t slack = 0;
  GradientSync sync = GradientSync::Ordered;          ///< how replicas add their gradients
  int64_t sync_every = 1;                             ///< SyncMethod::every
  int64_t sync_rank = 0;                              ///< SyncMethod::rank
  FloatType gradient_precision = FloatType::Float32;  ///< in which these travel
  Precision precision = Precision::Float32;           ///< in which the stages compute
  double optimizer_state_per_weight = 1.0;  ///< bytes per weight byte (SGD with momentum 1, Adam 2)
  cluster::Cluster cluster;
  std::vector<Stage> stages;
  std::vector<Link> links;
  Prediction prediction = {};
  Explanation explanation = {};

  /// Replica counts joined by '-': "15-1". With teams: "2t4-1" for two replicas, each a team of
  /// four, and then one worker. Where workers hold several stages: "8x2 chunks" for eight workers
  /// with two stages each, "2x(4x2 chunks)" for two copies of such a pipeline on four workers each,
  /// "8x2 chunks, teams of 4" for eight teams.
  std::string config() const;
  /// The weight policy and, where there is one, its compensation: "stash, compensated by predict".
  std::string weights_text() const;
  int num_workers() const;
  SyncMethod sync_method() const { return {sync, sync_every, sync_rank}; }
  void set_sync_method(const SyncMethod& method) {
    sync = method.sync;
    sync_every = method.every;
    sync_rank = method.rank;
  }
  /// Whether workers hold several stages: then `worker_of_replica` says which.
  bool shares_workers() const { return !worker_of_replica.empty(); }
  std::vector<int> replicas() const;
  /// By stage, the members of its teams; empty where all stages are whole.
  std::vector<int> teams() const;
  bool operator==(const Plan&) const = default;
};

/// The stage of every layer of the graph. Throws ConfigError when the plan does not cover exactly
/// the graph's layers, or an edge points from a later stage to an earlier one (both layers are
/// named).
std::vector<StageId> stage_of_layer(const Plan& plan, const graph::ModelGraph& graph);

/// By stage, whether its replicas share out the optimiser's state; empty where none do.
std::vector<bool> sharded_stages(const Plan& plan);

/// By stage, the workers of the cluster (with teams: the numbers of the teams) that hold its
/// replicas; only for plans whose workers hold several stages, otherwise empty. A worker_of_replica
/// that is too short gives the workers it has.
std::vector<std::vector<int>> workers_by_stage(const Plan& plan);

/// Throws ConfigError: no stage, an empty stage, replicas or tensor < 1, sizes or times negative,
/// backward_weight_ns above backward_ns, shares or rates that are not finite, links out of range or
/// backwards, only some stages placed, places that overlap or lie outside the cluster, a
/// worker_of_replica without one entry per replica, that leaves out a worker, has two replicas of a
/// stage on one, stages with other teams on one, or has another weight policy than flush, an
/// unknown gradient synchronisation, a compensation that does not work with the weight policy.
void validate(const Plan& plan);

/// Throws as validate: what is written can be read.
std::string to_json(const Plan& plan);
/// Reads versions 1 to 3; times of stages that recompute are converted from version 2. Throws
/// ParseError naming place and key, also for an unknown strategy and when a derived key (config,
/// compute_ns) disagrees with what it is derived from.
Plan parse_plan(std::string_view json, std::string_view place);
Plan load_plan(const std::filesystem::path& path);

}  // namespace penstock::plan
