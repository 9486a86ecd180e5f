// What joins the ranks of a job, as it was measured when they met: the cluster that a plan for them
// is made for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/probe/exchange_loss.h"

namespace penstock::probe {

/// Of one level: what the slowest of its links did while all were in use; 0: there is none.
struct MeasuredLink {
  int64_t bytes_per_s = 0;
  int64_t latency_ns = 0;
  /// As cluster::Level's, of the rank that loses most.
  int64_t processor_ns_per_gb = 0;
  int64_t processor_ns_per_message = 0;
  bool operator==(const MeasuredLink&) const = default;
};

/// What exchanges of gradients take from a rank's threads, and short messages.
struct Losses {
  Loss exchange = {};
  Loss message = {};

  void slowest(const Losses& other) {
    exchange.slowest(other.exchange);
    message.slowest(other.message);
  }
  /// A message costs what is left of a short one when its bytes are paid.
  void tell(MeasuredLink& link) const;
};

/// What a rank says of itself.
struct RankLinks {
  int host = 0;
  MeasuredLink in_host = {};  ///< to the next rank of its host
  MeasuredLink between = {};  ///< to the next host; only its host's first rank has one
  Losses in_host_losses = {};
  Losses between_losses = {};  ///< of every rank, with one of the next host
};

struct JobLinks {
  int hosts = 1;
  std::vector<int> host_of_rank = {0};  ///< of those that train
  int ranks_per_host = 1;               ///< on the host that has most
  bool regular = true;                  ///< every host has as many, one after another
  int ranks = 1;                        ///< that train
  int servers = 0;                      ///< ranks that only add gradients
  MeasuredLink in_host = {};
  MeasuredLink between = {};
};

/// The same numbers for the same texts, from 0 in the order of their first places.
std::vector<int> numbered(const std::vector<std::string>& texts);

/// Whom each rank is to measure its links with: the ranks before and behind it in a ring over its
/// host, and, of the first ranks of all hosts, in a ring over the hosts; -1: nobody.
struct LinkRing {
  int to = -1;
  int from = -1;
};
LinkRing ring_in_host(const std::vector<int>& hosts, int rank);
LinkRing ring_between_hosts(const std::vector<int>& hosts, int rank);
/// For exchanges between hosts, as all ranks make them when they train: of the ranks that have as
/// many of their host before them.
LinkRing ring_across_hosts(const std::vector<int>& hosts, int rank);

/// `ranks`: those that train, in order.
JobLinks summary(const std::vector<RankLinks>& ranks, int servers);

/// What was measured, for people: one line.
std::string links_text(const JobLinks& links);

/// The cluster of `workers` workers dealt to the ranks in blocks: threads of a rank, ranks of a
/// host, hosts; one level at the slowest speed where the blocks are uneven. Servers are CPU
/// machines between hosts. `copy_bandwidth_bytes_per_s`: how fast threads sum gradients.
/// `speed_of_host`: compared with the profile's device; all count as equal when there are none, or
/// they differ by less than a measurement may (a fifth).
cluster::Cluster cluster_of(const JobLinks& links, int workers, int64_t copy_bandwidth_bytes_per_s,
                            const std::vector<double>& speed_of_host = {});

}  // namespace penstock::probe
