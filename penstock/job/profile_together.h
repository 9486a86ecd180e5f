// One profile of a model for all ranks of a job, which measure at the same time: as much shares
// caches, memory bandwidth and power as will in training, and hosts are compared.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/job/job.h"
#include "penstock/profile/profile.h"

namespace penstock::job {

struct JobProfile {
  profile::Profile profile;           ///< the mean of those that measured
  std::vector<double> speed_of_host;  ///< compared with the mean; 1 where nobody measured
  int measured = 1;                   ///< ranks
};

/// Of what each rank that trains has measured, and of its host (from 0). Throws ConfigError when
/// nobody has, and as profile::mean_of().
JobProfile combined(const std::vector<std::optional<profile::Profile>>& profiles,
                    const std::vector<int>& hosts);

/// Collective. Calls `measure` on the first `most_per_host` ranks of every host that train, on all
/// at the same time; all ranks get the result.
JobProfile measure_together(Job& job, int most_per_host,
                            const std::function<profile::Profile()>& measure);

/// How fast each host is, for people: a line; empty for one host.
std::string speeds_text(const JobProfile& measured);

/// How many ranks of a host can measure at the same time without sharing cores.
int ranks_that_measure(int concurrency, int threads);

}  // namespace penstock::job
