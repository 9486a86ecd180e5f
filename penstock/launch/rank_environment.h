// The environment of the ranks that this process launches.
#pragma once

#include <string>
#include <vector>

#include "penstock/launch/job_environment.h"

namespace penstock::launch {

/// This process's environment, without what another launcher left there, with the job's variables:
/// what job_environment() reads. `job.token` is a secret.
std::vector<std::string> rank_environment(const JobEnvironment& job);

}  // namespace penstock::launch
