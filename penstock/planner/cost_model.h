// What a stage and a cut cost under a named model. The partitioner minimises the slowest of them. docs/planner.md has the formulas.
//
//   const auto model = make_cost_model("penstock", cluster);
//   double ns = model->stage_ns({.compute_ns = 1000, .step_ns = 10, .weight_bytes = 4000}, 2, 0);
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "penstock/cluster/cluster.h"
#include "penstock/simulate/network.h"

namespace penstock::planner {

/// A stage as the partitioner sees it: sums over its layers for one micro-batch.
struct SegmentCost {
  int64_t compute_ns = 0;  ///< forward + backward
  int64_t step_ns = 0;
  int64_t weight_bytes = 0;
};

/// Immutable, so thread-safe.
class CostModel {
 public:
  explicit CostModel(const simulate::Network& network) : network_(network) {}
  virtual ~CostModel() = default;
  virtual std::string_view name() const = 0;

  /// Time per micro-batch of a stage replicated `replicas` times, in ns, when an optimiser step takes `micro_batches` micro-batches. 0
  /// stands for one round, that is `replicas` of them: all that can be said before the other stages are known. Never below compute /
  /// replicas.
  virtual double stage_ns(const SegmentCost& segment, int replicas, int64_t micro_batches) const = 0;

  /// Time per micro-batch of a cut that `bytes` of activations cross forward and as many of gradients back.
  virtual double cut_ns(int64_t bytes) const = 0;

  /// The smallest count in [least, most] with stage_ns(...) <= limit_ns, or 0 when there is none.
  virtual int fewest_replicas(const SegmentCost& segment, double limit_ns, int least, int most, int64_t micro_batches) const = 0;

  /// One gradient synchronisation, as the simulator charges it under every model.
  int64_t sync_ns(int64_t weight_bytes, int replicas) const { return simulate::sync_ns(weight_bytes, replicas, network_); }
  const simulate::Network& network() const { return network_; }

 protected:
  simulate::Network network_;
};

/// "sosp2019": T = 1/m max(compute, 2(m-1) sum|w| / B), cut 2a/B (SOSP 2019, section 3.1, as printed: `micro_batches`, steps and latency do
/// not enter). "penstock": what the runtime does, computation, synchronisation and step one after the other on a worker:
/// T = (ceil(u/m) compute + sync(m) + step) / u for u micro-batches per step, cut 2a/B + latency (latency alone by reference).
/// More than one network level is taken as one at the slowest level's speed. Throws ConfigError listing the names otherwise.
std::unique_ptr<CostModel> make_cost_model(std::string_view name, const cluster::Cluster& cluster);

}  // namespace penstock::planner
