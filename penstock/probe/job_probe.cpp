#include "penstock/probe/job_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "penstock/net/wire.h"
#include "penstock/util/files/json.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/units.h"

namespace penstock::probe {

namespace {

struct HostProbe {
  Machine machine;
  int ranks = 0;
  int64_t sum_bytes_per_s = 0;  ///< means of its workers
  int64_t flops = 0;
};

std::vector<HostProbe> hosts_of(const JobProbe& job) {
  std::vector<HostProbe> hosts(static_cast<size_t>(job.links.hosts));
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    HostProbe& host = hosts[static_cast<size_t>(job.links.host_of_rank[r])];
    if (host.ranks++ == 0) host.machine = job.ranks[r].machine;
    host.sum_bytes_per_s += job.ranks[r].sum_bytes_per_s;
    host.flops += job.ranks[r].flops;
  }
  for (HostProbe& host : hosts) {
    host.sum_bytes_per_s /= host.ranks;
    host.flops /= host.ranks;
  }
  return hosts;
}

/// Compared with the mean over the ranks.
std::vector<double> speeds_of(const JobProbe& job, const std::vector<HostProbe>& hosts) {
  double mean = 0;
  for (const RankProbe& rank : job.ranks)
    mean += static_cast<double>(rank.flops) / static_cast<double>(job.ranks.size());
  std::vector<double> speeds;
  speeds.reserve(hosts.size());
  for (const HostProbe& host : hosts)
    speeds.push_back(mean > 0 && host.flops > 0
                         ? std::max(nearest(100.0 * static_cast<double>(host.flops) / mean), 1L) /
                               100.0
                         : 1.0);
  return speeds;
}

Json json_of(const MeasuredLink& link) {
  if (link.bytes_per_s == 0) return {};
  return {{"bytes_per_s", link.bytes_per_s},
          {"latency_ns", link.latency_ns},
          {"processor_ns_per_gb", link.processor_ns_per_gb},
          {"processor_ns_per_message", link.processor_ns_per_message}};
}

}  // namespace

RankProbe rank_probe(const ProbeResult& result) {
  return {.machine = result.machine,
          .sum_bytes_per_s = nearest(result.sum_shared_bytes_per_s.median),
          .flops = nearest(result.compute_shared_flops.median)};
}

std::string encode(const RankProbe& probe) {
  net::WireWriter out;
  out.text(probe.machine.processor);
  out.put(probe.machine.cores);
  out.put(probe.machine.memory_bytes);
  out.put(probe.sum_bytes_per_s);
  out.put(probe.flops);
  return out.take();
}

RankProbe decode(const std::string& message) {
  net::WireReader in(message);
  RankProbe probe;
  probe.machine.processor = in.text();
  probe.machine.cores = in.get<int>();
  probe.machine.memory_bytes = in.get<int64_t>();
  probe.sum_bytes_per_s = in.get<int64_t>();
  probe.flops = in.get<int64_t>();
  return probe;
}

cluster::Cluster cluster_of(const JobProbe& job) {
  const std::vector<HostProbe> hosts = hosts_of(job);
  int64_t sum = INT64_MAX;
  int64_t memory = INT64_MAX;
  for (const RankProbe& rank : job.ranks) sum = std::min(sum, rank.sum_bytes_per_s);
  for (const HostProbe& host : hosts)
    memory = std::min(memory, host.machine.memory_bytes / host.ranks / job.workers_per_rank);
  cluster::Cluster cluster =
      cluster_of(job.links, static_cast<int>(job.ranks.size()) * job.workers_per_rank,
                 std::max<int64_t>(sum, 1), speeds_of(job, hosts));
  // Rounded down: memory that does not exist cannot be planned with.
  if (memory > 100'000'000) memory -= memory % 100'000'000;
  cluster.device = {.name = hosts.front().machine.processor, .memory_bytes = memory};
  for (cluster::DeviceGroup& group : cluster.groups) group.device.memory_bytes = memory;
  cluster::validate(cluster);
  return cluster;
}

std::vector<std::string> measurement_lines(const JobProbe& job) {
  std::vector<std::string> lines{links_text(job.links)};
  const std::vector<HostProbe> hosts = hosts_of(job);
  for (size_t h = 0; h < hosts.size(); ++h) {
    const HostProbe& host = hosts[h];
    lines.push_back(
        fmt::format("host {}: {}, {}, {} of memory, {}; each worker sums {} and computes {}", h,
                    host.machine.processor, plural(host.machine.cores, "core"),
                    format_bytes(host.machine.memory_bytes), plural(host.ranks, "rank"),
                    format_bandwidth(host.sum_bytes_per_s), format_flops(host.flops)));
  }
  return lines;
}

std::vector<std::string> notes(const JobProbe& job) {
  std::vector<std::string> found;
  const std::vector<HostProbe> hosts = hosts_of(job);
  for (size_t h = 0; h < hosts.size(); ++h) {
    const int workers = hosts[h].ranks * job.workers_per_rank;
    if (workers > hosts[h].machine.cores) {
      found.push_back(fmt::format("host {}: {} workers share {}", h, workers,
                                  plural(hosts[h].machine.cores, "core")));
    }
  }
  if (!job.links.regular) {
    found.emplace_back(
        "the ranks are not dealt to the hosts in equal blocks: all links count as the slowest");
  }
  return found;
}

std::string to_toml(const JobProbe& job) {
  std::string text =
      "# Measured by penstock probe as a job; docs/clusters.md says what the numbers mean.\n#\n";
  for (const std::string& line : measurement_lines(job)) text += "# " + line + "\n";
  text +=
      "#\n# All ranks measured at the same time. Speeds are compared with their mean, as those of "
      "a "
      "profile\n# that the same job measures; hosts that differ by less than a fifth count as "
      "equal.\n";
  for (const std::string& note : notes(job)) text += "# Note: " + note + "\n";
  return text + "\n" + cluster::to_toml(cluster_of(job));
}

std::string to_json(const JobProbe& job) {
  Json hosts = Json::array();
  for (const HostProbe& host : hosts_of(job)) {
    hosts.push_back({{"processor", host.machine.processor},
                     {"cores", host.machine.cores},
                     {"memory_bytes", host.machine.memory_bytes},
                     {"ranks", host.ranks},
                     {"sum_bytes_per_s", host.sum_bytes_per_s},
                     {"flops", host.flops}});
  }
  const Json document = {{"ranks", job.ranks.size()},
                         {"servers", job.links.servers},
                         {"workers_per_rank", job.workers_per_rank},
                         {"hosts", hosts},
                         {"host_of_rank", job.links.host_of_rank},
                         {"link_in_host", json_of(job.links.in_host)},
                         {"link_between_hosts", json_of(job.links.between)},
                         {"notes", notes(job)},
                         {"cluster_toml", cluster::to_toml(cluster_of(job))}};
  return to_text(document);
}

}  // namespace penstock::probe
