// How long each computation takes when workers differ; internal to the simulator.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/action.h"
#include "penstock/simulate/values.h"

namespace penstock::simulate::detail {

/// Depends only on the seed, the worker and the action, not on the order in which the actions come.
class Variation {
 public:
  /// Throws ConfigError for a share, factor or spread out of range.
  Variation(const Options& options, int32_t num_workers);

  int64_t compute_ns(int32_t worker, const schedule::Action& action, int64_t planned_ns) const {
    return active_ ? varied_ns(worker, action, planned_ns) : planned_ns;
  }
  bool active() const { return active_; }
  const std::vector<double>& factors() const { return factors_; }

 private:
  int64_t varied_ns(int32_t worker, const schedule::Action& action, int64_t planned_ns) const;
  double sigma(double planned_ns) const;

  uint64_t seed_;
  double spread_;
  double spread_at_ns_;
  std::vector<double> factors_;  ///< per worker
  bool active_;
};

}  // namespace penstock::simulate::detail
