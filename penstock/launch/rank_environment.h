// The environment of the ranks that this process launches.
#pragma once

#include <string>
#include <vector>

namespace penstock::launch {

/// This process's environment, without what another launcher left there, with the job's variables:
/// what job_environment() reads. `token` is a secret.
std::vector<std::string> rank_environment(int rank, int ranks, const std::string& address, int port,
                                          const std::string& token, int restart, int servers);

}  // namespace penstock::launch
