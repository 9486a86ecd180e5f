// What auto_plan.h plans for: a plain value that knows nothing of libtorch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/job/listener.h"
#include "penstock/model/loss_spec.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/plan/boundary_coding.h"
#include "penstock/plan/compensation.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/strategy.h"
#include "penstock/plan/weight_policy.h"
#include "penstock/profile/profile.h"
#include "penstock/util/numbers/precision.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::job {

struct AutoPlanRequest {
  std::optional<plan::Strategy> strategy = {};  ///< nothing: chosen
  /// How replicas add their gradients; nothing: chosen.
  std::optional<plan::SyncMethod> sync = plan::SyncMethod();
  plan::OuterStep outer = {};                         ///< of diloco
  FloatType gradient_precision = FloatType::Float32;  ///< in which gradients travel
  bool shard_optimizer = false;  ///< wherever a stage has replicas; otherwise if memory needs it
  Precision precision = Precision::Float32;                    ///< in which the model computes
  std::optional<plan::WeightPolicy> weights = {};              ///< nothing: the strategy's own
  plan::Compensation compensation = plan::Compensation::None;  ///< of the delays
  /// PlanOptions::boundary
  std::optional<plan::BoundaryCoding> boundary = plan::BoundaryCoding{};
  int workers = 1;
  std::optional<int> tensor = 1;  ///< PlanOptions::tensor
  bool sequence = false;          ///< plan::Stage::sequence of all stages with teams
  /// The cluster of so many workers, given how fast threads sum gradients; empty: they are in this
  /// process.
  std::function<cluster::Cluster(int workers, int64_t copy_bandwidth_bytes_per_s)> cluster = {};
  std::optional<cluster::Level> between_gpus = {};  ///< of this process; nothing: as threads
  bool sums_wait = false;  ///< cluster::Level::sums_wait of the job's levels
  int local_workers = 0;   ///< of them, on this machine; 0: all
  /// Measures the model for so many micro-batches per mini-batch; empty: auto_plan() does, here.
  std::function<profile::Profile(int64_t micro_batches)> measure = {};
  int threads_per_worker = 1;
  std::string device = {};     ///< that is measured, as ProfilerOptions::device
  bool device_graphs = false;  ///< ProfilerOptions::device_graphs
  int64_t mini_batch_size = 64;
  std::optional<int64_t> micro_batches = {};    ///< per mini-batch; nothing: chosen, here and below
  std::optional<int64_t> chunks = {};           ///< stages per worker, where there is a choice
  std::optional<int64_t> slack = {};            ///< of eager-1f1b
  std::optional<int64_t> keep = {};             ///< of zb-auto and zb-auto-v
  std::optional<int64_t> gradient_groups = {};  ///< planner::PlanOptions
  bool straight = false;                        ///< likewise
  bool global_norm = false;  ///< all workers wait for the norm of all gradients before each step
  std::string profile_path;  ///< measured before; empty: measure now
  /// profile_cache.h; `off`: measured anew.
  std::string profile_cache = "off";
  int profile_samples = 5;
  std::vector<profile::LengthGroup> lengths = {};  ///< of the run's sequences; empty: the model's
  /// That will be trained on, over all epochs. Profiling goes on for up to a second while it takes
  /// less than about a tenth of the training.
  int64_t training_samples = 0;
  Listener listener = {};                   ///< what is measured, and why again
  const std::atomic<bool>* stop = nullptr;  ///< ends the measurement, once true
  uint64_t seed = 1;
  model::OptimizerSpec optimizer;
  model::LossSpec loss = {};
};

}  // namespace penstock::job
