#include "penstock/simulate/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/rng.h"
#include "penstock/util/rounding.h"
#include "penstock/util/units.h"

namespace penstock::simulate::detail {

namespace {

constexpr int64_t kMostFailures = 1'000'000;

/// The times of the job's failures, in order.
class FailureTimes {
 public:
  FailureTimes(const Failures& failures, uint64_t seed, int64_t num_workers)
      : rng_(derive_seed(seed, hash_name("failures"))),
        mean_ns_(static_cast<double>(failures.worker_mtbf_ns) / static_cast<double>(num_workers)) {}

  double mean_ns() const { return mean_ns_; }
  /// The next failure after `from_ns`; the Poisson process is memoryless.
  int64_t next(int64_t from_ns) {
    const double wait_ns = -std::log(1 - rng_.uniform()) * mean_ns_;
    return saturating_add(from_ns, rounded_down(wait_ns));
  }

 private:
  Rng rng_;
  double mean_ns_;
};

}  // namespace

void check_failures(const Failures& failures) {
  if (std::min({failures.worker_mtbf_ns, failures.restart_ns, failures.checkpoint_every,
                failures.checkpoint_ns}) < 0) {
    throw ConfigError(
        "mean time between failures, restart time, checkpoint interval and checkpoint time must "
        "not be negative");
  }
}

FailureOutcome with_failures(const Failures& failures, uint64_t seed, int64_t num_workers,
                             int64_t schedule_ns, std::vector<int64_t> finished_ns) {
  FailureOutcome outcome{.makespan_ns = schedule_ns};
  if (failures.worker_mtbf_ns == 0) return outcome;
  // A step counts when all steps before it are made, too.
  for (size_t t = 1; t < finished_ns.size(); ++t)
    finished_ns[t] = std::max(finished_ns[t], finished_ns[t - 1]);
  const auto num_steps = static_cast<int64_t>(finished_ns.size());
  const int64_t every = failures.checkpoint_every > 0 ? failures.checkpoint_every : num_steps + 1;
  // From a checkpoint, n remaining steps take as long as the first n steps took.
  const auto time_of = [&](int64_t steps) {
    if (steps == num_steps) return schedule_ns;
    return steps == 0 ? 0 : finished_ns[static_cast<size_t>(steps - 1)];
  };
  FailureTimes times(failures, seed, num_workers);
  int64_t begun_ns = 0;
  int64_t steps_kept = 0;
  int64_t failure_ns = times.next(0);
  while (failure_ns < saturating_add(begun_ns, time_of(num_steps - steps_kept)) &&
         failure_ns != INT64_MAX) {
    if (++outcome.num_failures > kMostFailures) {
      throw ConfigError(
          fmt::format("the job fails every {} on average and never gets from one checkpoint to "
                      "the next; checkpoint more often",
                      format_duration(static_cast<int64_t>(times.mean_ns()))));
    }
    // a failure during a restart loses no work
    const int64_t ran_ns = std::max<int64_t>(failure_ns - begun_ns, 0);
    const int64_t made =
        std::upper_bound(finished_ns.begin(), finished_ns.end(), ran_ns) - finished_ns.begin();
    const int64_t checkpoints = std::min(made, num_steps - steps_kept) / every;
    const int64_t saved_ns = checkpoints == 0 ? 0 : time_of(checkpoints * every);
    outcome.redone_ns = saturating_add(outcome.redone_ns, ran_ns - saved_ns);
    steps_kept += checkpoints * every;
    const int64_t restarted_ns = saturating_add(failure_ns, failures.restart_ns);
    outcome.down_ns =
        saturating_add(outcome.down_ns, restarted_ns - std::max(failure_ns, begun_ns));
    begun_ns = restarted_ns;
    failure_ns = times.next(failure_ns);
  }
  outcome.makespan_ns = saturating_add(begun_ns, time_of(num_steps - steps_kept));
  return outcome;
}

}  // namespace penstock::simulate::detail
