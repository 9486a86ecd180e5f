#include "penstock/probe/job_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/units.h"

namespace penstock::probe {

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
  return {std::min(a.bytes_per_s, b.bytes_per_s), std::max(a.latency_ns, b.latency_ns),
          std::max(a.processor_ns_per_gb, b.processor_ns_per_gb),
          std::max(a.processor_ns_per_message, b.processor_ns_per_message)};
}

cluster::Level level(const char* name, int count, const MeasuredLink& link) {
  return {.name = name,
          .count = count,
          .bandwidth_bytes_per_s = std::max<int64_t>(link.bytes_per_s, 1),
          .latency_ns = link.latency_ns,
          .processor_ns_per_gb = link.processor_ns_per_gb,
          .processor_ns_per_message = link.processor_ns_per_message};
}

/// Whether more than measurements of equal hosts do.
bool differ(const std::vector<double>& speeds) {
  constexpr double kLeast = 1.2;
  if (speeds.empty()) return false;
  const auto [least, most] = std::minmax_element(speeds.begin(), speeds.end());
  return *most > kLeast * *least;
}

/// The workers of each rank with the speed of its host.
std::vector<cluster::DeviceGroup> groups_of(const JobLinks& links, int workers,
                                            const std::vector<double>& speed_of_host) {
  std::vector<cluster::DeviceGroup> groups;
  for (int w = 0; w < workers; ++w) {
    const auto rank = static_cast<size_t>(int64_t{w} * links.ranks / workers);
    const int host = links.host_of_rank[rank];
    const std::string name = fmt::format("host {}", host);
    if (groups.empty() || groups.back().device.name != name) {
      const double speed = speed_of_host[static_cast<size_t>(host)];
      groups.push_back({.first = w, .count = 0, .device = {.name = name, .speed = speed}});
    }
    ++groups.back().count;
  }
  return groups;
}

}  // namespace

void Losses::tell(MeasuredLink& link) const {
  constexpr int64_t kGb = 1'000'000'000;
  link.processor_ns_per_gb = exchange.median_ns();
  const int64_t bytes_ns = ceil_mul_div(kShortMessageBytes, link.processor_ns_per_gb, kGb);
  link.processor_ns_per_message = std::max<int64_t>(0, message.median_ns() - bytes_ns);
}

std::vector<int> numbered(const std::vector<std::string>& texts) {
  std::map<std::string, int> number_of;
  std::vector<int> numbers;
  numbers.reserve(texts.size());
  for (const std::string& text : texts)
    numbers.push_back(number_of.emplace(text, static_cast<int>(number_of.size())).first->second);
  return numbers;
}

LinkRing ring_in_host(const std::vector<int>& hosts, int rank) {
  std::vector<int> members;
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    if (hosts[static_cast<size_t>(r)] == hosts[static_cast<size_t>(rank)]) members.push_back(r);
  }
  return ring(members, rank);
}

LinkRing ring_between_hosts(const std::vector<int>& hosts, int rank) {
  std::vector<int> members;
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    if (std::find(hosts.begin(), hosts.begin() + r, hosts[static_cast<size_t>(r)]) ==
        hosts.begin() + r)
      members.push_back(r);
  }
  return ring(members, rank);
}

LinkRing ring_across_hosts(const std::vector<int>& hosts, int rank) {
  std::vector<int> members;
  const auto number = [&](int r) {
    const auto at = hosts.begin() + r;
    return std::count(hosts.begin(), at, *at);
  };
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    if (number(r) == number(rank)) members.push_back(r);
  }
  return ring(members, rank);
}

JobLinks summary(const std::vector<RankLinks>& ranks, int servers) {
  JobLinks links{.ranks = static_cast<int>(ranks.size()), .servers = servers};
  std::map<int, int> count;
  links.host_of_rank.clear();
  Losses in_host;
  Losses between;
  int changes = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    ++count[ranks[r].host];
    links.host_of_rank.push_back(ranks[r].host);
    changes += r > 0 && ranks[r].host != ranks[r - 1].host ? 1 : 0;
    links.in_host = slower(links.in_host, ranks[r].in_host);
    links.between = slower(links.between, ranks[r].between);
    in_host.slowest(ranks[r].in_host_losses);
    between.slowest(ranks[r].between_losses);
  }
  in_host.tell(links.in_host);
  between.tell(links.between);
  links.hosts = static_cast<int>(count.size());
  links.regular = changes + 1 == links.hosts;
  for (const auto& [host, number] : count) {
    links.regular = links.regular && number == count.begin()->second;
    links.ranks_per_host = std::max(links.ranks_per_host, number);
  }
  return links;
}

std::string links_text(const JobLinks& links) {
  std::string text = fmt::format("job of {}", plural(links.ranks, "rank"));
  if (links.servers > 0) text += fmt::format(" and {}", plural(links.servers, "server"));
  text += fmt::format(" on {}", plural(links.hosts, "host"));
  const auto add = [&](const char* where, const MeasuredLink& link) {
    if (link.bytes_per_s > 0) {
      text += fmt::format("; {} {} and {}", where, format_bandwidth(link.bytes_per_s),
                          format_duration(link.latency_ns));
      if (link.processor_ns_per_gb > 0)
        text += fmt::format(", sums take {} of processor time per GB",
                            format_duration(link.processor_ns_per_gb));
      if (link.processor_ns_per_message > 0)
        text += fmt::format(", a message {}", format_duration(link.processor_ns_per_message));
    }
  };
  add("between ranks of a host", links.in_host);
  add("between hosts", links.between);
  return text;
}

cluster::Cluster cluster_of(const JobLinks& links, int workers, int64_t copy_bandwidth_bytes_per_s,
                            const std::vector<double>& speed_of_host) {
  cluster::Cluster cluster;
  cluster.device.name = "thread";
  if (differ(speed_of_host)) cluster.groups = groups_of(links, workers, speed_of_host);
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
  if (links.ranks > 1 && !cluster.levels.empty()) cluster.levels.back().machine = true;
  if (links.hosts > 1) cluster.levels.push_back(level("network", links.hosts, links.between));
  // One worker, beside servers.
  if (cluster.levels.empty())
    cluster.levels.push_back({"process", threads, copy_bandwidth_bytes_per_s, 0, true});
  return cluster;
}

}  // namespace penstock::probe
