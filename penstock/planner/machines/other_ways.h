// What the same machines would do under PyTorch's other ways to spread a model: data parallelism
// (DDP), fully sharded data parallelism (FSDP) and tensor parallelism. By formula, so that it is
// plain where the time goes, and simulated.
//
//   for (const OtherWay& way : other_ways(profile, cluster, options, /*step_samples=*/64)) ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/planner/plan_options.h"
#include "penstock/profile/profile.h"

namespace penstock::planner {

/// One way, with steps of as many samples as the others. Times are of a step.
struct OtherWay {
  std::string name;             ///< "ddp", "fsdp", "tensor"
  bool possible = true;         ///< else `note` says why not, and the rest is 0
  int64_t memory_bytes = 0;     ///< of a device
  int first_without_room = -1;  ///< the first worker whose memory is smaller; -1: none
  int64_t compute_ns = 0;       ///< of the slowest device
  int64_t bytes = 0;            ///< that a device sends
  int64_t wire_ns = 0;          ///< that these take through the slowest level
  /// By formula: if nothing of the wire's time is hidden by computing, and if all of it is.
  double low_samples_per_s = 0;
  double high_samples_per_s = 0;
  double simulated_samples_per_s = 0;
  std::string note = {};

  bool operator==(const OtherWay&) const = default;
};

/// Of n workers, with G bytes of gradients, W of weights, trained and frozen, and B the bandwidth
/// of the slowest level that joins workers:
///
///   ddp     each device has everything; 2 (n-1)/n G per step (a ring); simulated as a plan of dp
///   fsdp    each device keeps 1/n of weights, gradients and state and gathers a layer's weights
///           when it needs them: (n-1)/n (2 W + G) per micro-batch of a device (ZeRO stage 3,
///           Rajbhandari et al. 2020, section 7.3); the next layer's are gathered meanwhile
///   tensor  one team of n: 2 (n-1)/n of what its members sum (profile::TensorShare), in both
///           passes of each micro-batch
///
/// `step_samples` are rounded up to whole micro-batches, as many for each device. Throws
/// ConfigError as make_plan(). O(layers * micro-batches of a device, at most 64).
std::vector<OtherWay> other_ways(const profile::Profile& profile, const cluster::Cluster& cluster,
                                 const PlanOptions& options, int64_t step_samples);

}  // namespace penstock::planner
