#include "tools/penstock/job_links.h"

#include <algorithm>
#include <map>

namespace penstock::tool {

namespace {

LinkRing ring(const std::vector<int>& members, int rank) {
  const auto found = std::find(members.begin(), members.end(), rank);
  if (found == members.end() || members.size() < 2) return {};
  const auto at = static_cast<size_t>(found - members.begin());
  return {.to = members[(at + 1) % members.size()],
          .from = members[(at + members.size() - 1) % members.size()]};
}

MeasuredLink slower(const MeasuredLink& a, const MeasuredLink& b) {
  if (a.bytes_per_s == 0) return b;
  if (b.bytes_per_s == 0) return a;
  return {std::min(a.bytes_per_s, b.bytes_per_s), std::max(a.latency_ns, b.latency_ns)};
}

cluster::Level level(const char* name, int count, const MeasuredLink& link) {
  return {.name = name,
          .count = count,
          .bandwidth_bytes_per_s = std::max<int64_t>(link.bytes_per_s, 1),
          .latency_ns = link.latency_ns};
}

}  // namespace

LinkRing ring_in_host(const std::vector<std::string>& hosts, int rank) {
  std::vector<int> members;
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    if (hosts[static_cast<size_t>(r)] == hosts[static_cast<size_t>(rank)]) members.push_back(r);
  }
  return ring(members, rank);
}

LinkRing ring_between_hosts(const std::vector<std::string>& hosts, int rank) {
  std::vector<int> members;
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    if (std::find(hosts.begin(), hosts.begin() + r, hosts[static_cast<size_t>(r)]) ==
        hosts.begin() + r)
      members.push_back(r);
  }
  return ring(members, rank);
}

JobLinks summary(const std::vector<RankLinks>& ranks, int servers) {
  JobLinks links{.ranks = static_cast<int>(ranks.size()), .servers = servers};
  std::map<std::string, int> count;
  int changes = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    ++count[ranks[r].host];
    changes += r > 0 && ranks[r].host != ranks[r - 1].host ? 1 : 0;
    links.in_host = slower(links.in_host, ranks[r].in_host);
    links.between = slower(links.between, ranks[r].between);
  }
  links.hosts = static_cast<int>(count.size());
  links.regular = changes + 1 == links.hosts;
  for (const auto& [host, number] : count) {
    links.regular = links.regular && number == count.begin()->second;
    links.ranks_per_host = std::max(links.ranks_per_host, number);
  }
  return links;
}

cluster::Cluster cluster_of(const JobLinks& links, int workers,
                            int64_t copy_bandwidth_bytes_per_s) {
  cluster::Cluster cluster;
  cluster.device.name = "thread";
  if (links.servers > 0 && links.hosts > 1) {
    cluster.cpu_machines = {
        .count = links.servers,
        .bandwidth_bytes_per_s = std::max<int64_t>(links.between.bytes_per_s, 1)};
  }
  if (!links.regular || workers % links.ranks != 0) {
    cluster.levels.push_back(level("job", workers, slower(links.in_host, links.between)));
    return cluster;
  }
  const int threads = workers / links.ranks;
  if (threads > 1)
    cluster.levels.push_back({"process", threads, copy_bandwidth_bytes_per_s, 0, true});
  if (links.ranks_per_host > 1)
    cluster.levels.push_back(level("host", links.ranks_per_host, links.in_host));
  if (links.hosts > 1) cluster.levels.push_back(level("network", links.hosts, links.between));
  return cluster;
}

}  // namespace penstock::tool
