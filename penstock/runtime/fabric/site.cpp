#include "penstock/runtime/fabric/site.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/error.h"

namespace penstock::runtime {

Site Site::one_rank(int workers) {
  return {.rank = 0, .rank_of_worker = std::vector<int>(static_cast<size_t>(workers), 0)};
}

int Site::num_training_ranks() const {
  if (rank_of_worker.empty()) return 0;
  return *std::max_element(rank_of_worker.begin(), rank_of_worker.end()) + 1;
}

std::vector<int> Site::server_ranks() const {
  std::vector<int> ranks;
  for (int rank = num_training_ranks(); rank < num_ranks(); ++rank) ranks.push_back(rank);
  return ranks;
}

std::vector<WorkerId> Site::own_workers() const {
  std::vector<WorkerId> workers;
  for (int w = 0; w < num_workers(); ++w) {
    if (holds(WorkerId{w})) workers.push_back(WorkerId{w});
  }
  return workers;
}

void validate(const Site& site) {
  if (site.rank_of_worker.empty()) throw ConfigError("a job needs at least 1 worker, found none");
  if (!site.device_of_worker.empty() &&
      site.device_of_worker.size() != site.rank_of_worker.size()) {
    throw ConfigError(fmt::format("expected a device for each of the {} workers, found {}",
                                  site.rank_of_worker.size(), site.device_of_worker.size()));
  }
  const int workers = site.num_workers();
  std::vector<bool> has_worker(static_cast<size_t>(workers), false);
  for (int w = 0; w < workers; ++w) {
    const int rank = site.rank_of_worker[static_cast<size_t>(w)];
    // More ranks than workers would leave one without.
    if (rank < 0 || rank >= workers) {
      throw ConfigError(fmt::format("worker {} is on rank {}, expected a rank from 0 to {}", w,
                                    rank, workers - 1));
    }
    has_worker[static_cast<size_t>(rank)] = true;
  }
  if (site.servers < 0)
    throw ConfigError(fmt::format("expected at least 0 servers, found {}", site.servers));
  for (int rank = 0; rank < site.num_training_ranks(); ++rank) {
    if (!has_worker[static_cast<size_t>(rank)])
      throw ConfigError(fmt::format("rank {} of {} has no worker", rank, site.num_ranks()));
  }
  if (!site.host_of_rank.empty() &&
      site.host_of_rank.size() != static_cast<size_t>(site.num_ranks())) {
    throw ConfigError(fmt::format("expected a host for each of the {} ranks, found {}",
                                  site.num_ranks(), site.host_of_rank.size()));
  }
  if (site.rank < 0 || site.rank >= site.num_ranks()) {
    throw ConfigError(fmt::format("this process is rank {}, expected a rank from 0 to {}",
                                  site.rank, site.num_ranks() - 1));
  }
}

}  // namespace penstock::runtime
