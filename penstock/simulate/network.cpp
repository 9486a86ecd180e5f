#include "penstock/simulate/network.h"

#include <algorithm>

#include "penstock/cluster/topology.h"
#include "penstock/simulate/places.h"
#include "penstock/util/arithmetic.h"

namespace penstock::simulate::detail {

int64_t transfer_ns(int64_t bytes, int64_t bandwidth_bytes_per_s) {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  if (bandwidth_bytes_per_s == 0 || bytes == 0) return 0;
  const __int128 ns = (static_cast<__int128>(bytes) * kNsPerSecond + bandwidth_bytes_per_s - 1) / bandwidth_bytes_per_s;
  return ns > INT64_MAX ? INT64_MAX : static_cast<int64_t>(ns);
}

Network::Network(const Costs& costs, const schedule::WorkerTable& table, const std::vector<int64_t>& link_bytes) {
  const std::vector<int> places = places_of(costs, table);
  if (!costs.cluster) {
    add_joint(places, 1, link_bytes, costs.bandwidth_bytes_per_s, costs.bandwidth_bytes_per_s, costs.latency_ns);
    return;
  }
  const cluster::Topology topology(*costs.cluster);
  for (int level = 1; level <= topology.num_levels(); ++level) {
    const cluster::Level& joining = costs.cluster->levels[static_cast<size_t>(level - 1)];
    if (joining.count == 1) continue;
    const cluster::Path& path = topology.path(level);
    add_joint(places, topology.unit_size(level - 1), link_bytes, joining.by_reference ? 0 : joining.bandwidth_bytes_per_s,
              path.by_reference ? 0 : path.bandwidth_bytes_per_s, path.latency_ns);
  }
}

void Network::add_joint(const std::vector<int>& places, int unit_size, const std::vector<int64_t>& link_bytes,
                        int64_t bandwidth_bytes_per_s, int64_t path_bandwidth_bytes_per_s, int64_t latency_ns) {
  Joint joint;
  joint.latency_ns = latency_ns;
  // Only units in use are kept: a small plan on an enormous cluster costs nothing.
  std::vector<int32_t> used;
  used.reserve(places.size());
  for (const int place : places) used.push_back(place / unit_size);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  joint.up.reserve(places.size());
  const size_t first_wire = free_ns_.size();
  for (const int place : places) {
    const auto unit = static_cast<size_t>(std::lower_bound(used.begin(), used.end(), place / unit_size) - used.begin());
    joint.up.push_back(static_cast<int32_t>(first_wire + 2 * unit));
  }
  free_ns_.resize(first_wire + 2 * used.size());
  for (const int64_t bytes : link_bytes) {
    joint.busy_ns.push_back(transfer_ns(bytes, bandwidth_bytes_per_s));
    joint.whole_ns.push_back(transfer_ns(bytes, path_bandwidth_bytes_per_s));
  }
  joints_.push_back(std::move(joint));
}

Transit Network::start(int32_t sender, int32_t receiver, int32_t link) const {
  Transit message{.sender = sender, .receiver = receiver, .link = link};
  // Workers share a unit of level k when they are in the same unit below level k + 1; all share one of the last.
  if (sender == receiver) return message;
  const auto from = static_cast<size_t>(sender);
  const auto to = static_cast<size_t>(receiver);
  size_t levels = 1;
  while (levels < joints_.size() && joints_[levels].up[from] != joints_[levels].up[to]) ++levels;
  message.levels = static_cast<int32_t>(levels);
  return message;
}

bool Network::advance(Transit& message, int64_t now_ns, int64_t& when_ns) {
  when_ns = now_ns;
  if (message.levels == 0) return true;
  const Joint& highest = joints_[static_cast<size_t>(message.levels - 1)];
  const auto link = static_cast<size_t>(message.link);
  const int64_t whole_ns = highest.whole_ns[link];
  if (whole_ns == 0) {
    when_ns = saturating_add(now_ns, highest.latency_ns);
    return true;
  }
  const int32_t hops = 2 * message.levels;
  while (message.hop < hops) {
    const bool up = message.hop < message.levels;
    const Joint& joint = joints_[static_cast<size_t>(up ? message.hop : hops - 1 - message.hop)];
    message.wire = joint.up[static_cast<size_t>(up ? message.sender : message.receiver)] + (up ? 0 : 1);
    int64_t& free_ns = free_ns_[static_cast<size_t>(message.wire)];
    const int64_t begin_ns = std::max(now_ns, free_ns);
    if (joint.busy_ns[link] > 0) free_ns = saturating_add(begin_ns, joint.busy_ns[link]);
    message.end_ns = std::max(message.end_ns, saturating_add(begin_ns, joint.busy_ns[link]));
    if (++message.hop == hops) {
      when_ns = saturating_add(std::max(message.end_ns, saturating_add(begin_ns, whole_ns)), highest.latency_ns);
      return true;
    }
    if (begin_ns > now_ns) {
      when_ns = begin_ns;
      return false;
    }
  }
  return true;
}

}  // namespace penstock::simulate::detail
