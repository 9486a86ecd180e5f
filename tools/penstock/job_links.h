// What joins the ranks of a job, as it was measured when they met: the cluster that a plan for them
// is made for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"

namespace penstock::tool {

/// Of one level: what the slowest of its links did while all were in use; 0: there is none.
struct MeasuredLink {
  int64_t bytes_per_s = 0;
  int64_t latency_ns = 0;
  bool operator==(const MeasuredLink&) const = default;
};

/// What a rank says of itself.
struct RankLinks {
  std::string host;           ///< the same text for ranks of one host
  MeasuredLink in_host = {};  ///< to the next rank of its host
  MeasuredLink between = {};  ///< to the next host; only its host's first rank has one
};

struct JobLinks {
  int hosts = 1;
  int ranks_per_host = 1;  ///< on the host that has most
  bool regular = true;     ///< every host has as many, one after another
  int ranks = 1;           ///< that train
  int servers = 0;         ///< ranks that only add gradients
  MeasuredLink in_host = {};
  MeasuredLink between = {};
};

/// Whom each rank is to measure its links with: the ranks before and behind it in a ring over its
/// host, and, of the first ranks of all hosts, in a ring over the hosts; -1: nobody.
struct LinkRing {
  int to = -1;
  int from = -1;
};
LinkRing ring_in_host(const std::vector<std::string>& hosts, int rank);
LinkRing ring_between_hosts(const std::vector<std::string>& hosts, int rank);

/// `ranks`: those that train, in order.
JobLinks summary(const std::vector<RankLinks>& ranks, int servers);

/// The cluster of `workers` workers dealt to the ranks in blocks: threads of a rank, ranks of a
/// host, hosts; one level at the slowest speed where the blocks are uneven. Servers are CPU
/// machines between hosts. `copy_bandwidth_bytes_per_s`: how fast threads sum gradients.
cluster::Cluster cluster_of(const JobLinks& links, int workers, int64_t copy_bandwidth_bytes_per_s);

}  // namespace penstock::tool
