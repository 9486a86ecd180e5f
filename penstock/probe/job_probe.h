// What the ranks of a job have measured of themselves and of what joins them, as a cluster file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/probe/job_links.h"
#include "penstock/probe/probe.h"

namespace penstock::probe {

/// A rank that trains, while all of them measure.
struct RankProbe {
  Machine machine;
  int64_t sum_bytes_per_s = 0;  ///< of each of its workers
  int64_t flops = 0;            ///< of each of its workers
  bool operator==(const RankProbe&) const = default;
};
RankProbe rank_probe(const ProbeResult& result);
/// As a message.
std::string encode(const RankProbe& probe);
/// Throws TransportError.
RankProbe decode(const std::string& message);

struct JobProbe {
  JobLinks links;
  std::vector<RankProbe> ranks;  ///< those that train
  int workers_per_rank = 1;
};

/// A worker's memory is the least of its share of any host's; hosts of unequal speed are groups.
cluster::Cluster cluster_of(const JobProbe& job);
/// For people: one line for the links, one per host.
std::vector<std::string> measurement_lines(const JobProbe& job);
/// What makes the measurements doubtful.
std::vector<std::string> notes(const JobProbe& job);
std::string to_toml(const JobProbe& job);
std::string to_json(const JobProbe& job);

}  // namespace penstock::probe
