// Where the workers of a job are: which rank (process) runs each of them, on which device.
//
//   const Site site = Site::one_rank(4);          // four threads of this process
//   Site{.rank = 1, .rank_of_worker = {0, 0, 1}}  // the second of two ranks, which holds worker 2
//   Site{.rank = 2, .rank_of_worker = {0, 1}, .servers = 1}       // the third adds gradients only
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "penstock/util/ids.h"

namespace penstock::runtime {

/// A plain value. The same on every rank except for `rank` and the devices of other ranks' workers.
struct Site {
  int rank = 0;                                   ///< this process
  std::vector<int> rank_of_worker;                ///< per worker, from 0 without gaps
  std::vector<at::Device> device_of_worker = {};  ///< per worker of this rank; empty: the CPU
  /// Ranks without a worker, behind all others, that only add gradients (plan/gradient_sync.h).
  int servers = 0;
  /// Per rank, which host it is on: ranks with the same number share memory and a NIC. Empty: each
  /// has a host of its own.
  std::vector<int> host_of_rank = {};

  /// All workers in this process.
  static Site one_rank(int workers);

  int num_workers() const { return static_cast<int>(rank_of_worker.size()); }
  int num_ranks() const { return num_training_ranks() + servers; }
  int num_training_ranks() const;
  /// The ranks of the servers.
  std::vector<int> server_ranks() const;
  /// Whether this rank runs the worker.
  bool holds(WorkerId worker) const { return rank_of_worker[worker.index()] == rank; }
  /// The host of a rank.
  int host_of(int of_rank) const {
    return host_of_rank.empty() ? of_rank : host_of_rank[static_cast<size_t>(of_rank)];
  }
  /// The workers that this rank runs, ascending.
  std::vector<WorkerId> own_workers() const;
};

/// Throws ConfigError when there is no worker, a rank that is no server has none, `rank` is not one
/// of them, or the devices are not one per worker, or the hosts not one per rank. O(workers).
void validate(const Site& site);

}  // namespace penstock::runtime
