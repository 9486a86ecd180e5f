// How failures, restarts and lost work change the time of a schedule; internal to the simulator.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/simulate/simulator.h"

namespace penstock::simulate::detail {

struct FailureOutcome {
  int64_t makespan_ns = 0;
  int64_t num_failures = 0;
  int64_t redone_ns = 0;
  int64_t down_ns = 0;
};

/// Throws ConfigError for negative times and counts.
void check_failures(const Failures& failures);

/// `finished_ns[t]`: when every worker had made step t in the schedule without failures, which ends
/// at `schedule_ns`. After a failure the job goes back to its last checkpoint and runs from there
/// like a new job from the beginning, including the time to fill the pipeline. Failures of the job
/// are a Poisson process of rate workers / mean time, also while it restarts. Throws ConfigError
/// after a million failures. O(failures * log steps).
FailureOutcome with_failures(const Failures& failures, uint64_t seed, int64_t num_workers,
                             int64_t schedule_ns, std::vector<int64_t> finished_ns);

}  // namespace penstock::simulate::detail
