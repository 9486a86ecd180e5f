#include "penstock/simulate/network.h"

#include <algorithm>

#include "penstock/cluster/topology.h"
#include "penstock/schedule/wire_rule.h"
#include "penstock/simulate/places.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate::detail {

int64_t transfer_ns(int64_t bytes, int64_t bandwidth_bytes_per_s) {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  return bandwidth_bytes_per_s == 0 ? 0 : ceil_mul_div(bytes, kNsPerSecond, bandwidth_bytes_per_s);
}

namespace {

int ceil_log2(int64_t n) {
  int log = 0;
  while ((int64_t{1} << log) < n) ++log;
  return log;
}

/// The largest number of used units (ascending) in one group of `units_per_group`; 0: all are one
/// group.
int64_t most_in_a_group(const std::vector<int32_t>& units, int units_per_group) {
  if (units_per_group == 0) return static_cast<int64_t>(units.size());
  int64_t most = 0;
  int64_t count = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const bool same = i > 0 && units[i] / units_per_group == units[i - 1] / units_per_group;
    count = same ? count + 1 : 1;
    most = std::max(most, count);
  }
  return most;
}

}  // namespace

Network::Network(const Costs& costs, const schedule::ScheduleShape& shape,
                 const schedule::WorkerTable& table, const std::vector<int64_t>& lane_bytes) {
  const std::vector<int> places = places_of(costs, shape, table);
  std::vector<Level> levels;
  if (costs.cluster) {
    const cluster::Topology topology(*costs.cluster);
    for (int level = 1; level <= topology.num_levels(); ++level) {
      const cluster::Level& joining = costs.cluster->levels[static_cast<size_t>(level - 1)];
      if (joining.count == 1) continue;
      const cluster::Path& path = topology.path(level);
      levels.push_back({.unit_size = topology.unit_size(level - 1),
                        .joint_size = topology.unit_size(level),
                        .bandwidth_bytes_per_s = joining.bandwidth_bytes_per_s,
                        .copies = !path.by_reference,
                        .latency_ns = path.latency_ns,
                        .processor_ns_per_gb = path.processor_ns_per_gb,
                        .processor_ns_per_message = path.processor_ns_per_message});
    }
  } else {
    levels.push_back({.bandwidth_bytes_per_s = costs.bandwidth_bytes_per_s,
                      .copies = costs.bandwidth_bytes_per_s > 0,
                      .latency_ns = costs.latency_ns});
  }
  latency_ns_.reserve(levels.size());
  up_.resize(places.size() * levels.size());
  tolls_.resize(lane_bytes.size() * levels.size());
  for (const Level& level : levels) latency_ns_.push_back(level.latency_ns);
  for (size_t i = 0; i < levels.size(); ++i) add_level(i, levels[i], places, lane_bytes);
}

void Network::add_level(size_t number, const Level& level, const std::vector<int>& places,
                        const std::vector<int64_t>& lane_bytes) {
  const size_t num_levels = latency_ns_.size();
  // Only units in use are kept: a small plan on an enormous cluster costs nothing.
  std::vector<int32_t> used;
  used.reserve(places.size());
  for (const int place : places) used.push_back(place / level.unit_size);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  const size_t first_wire = wires_.size();
  for (size_t w = 0; w < places.size(); ++w) {
    const auto unit = static_cast<size_t>(
        std::lower_bound(used.begin(), used.end(), places[w] / level.unit_size) - used.begin());
    up_[w * num_levels + number] = static_cast<int32_t>(first_wire + 2 * unit);
  }
  wires_.resize(first_wire + 2 * used.size());
  constexpr int64_t kBothEndsOfGb = 2'000'000'000;
  takes_processor_time_ =
      takes_processor_time_ || level.processor_ns_per_gb > 0 || level.processor_ns_per_message > 0;
  for (size_t lane = 0; lane < lane_bytes.size(); ++lane) {
    tolls_[lane * num_levels + number] = {
        .busy_ns = transfer_ns(lane_bytes[lane], level.bandwidth_bytes_per_s),
        .processor_ns =
            saturating_add(ceil_mul_div(lane_bytes[lane], level.processor_ns_per_gb, kBothEndsOfGb),
                           (level.processor_ns_per_message + 1) / 2),
        .copies = level.copies && lane_bytes[lane] > 0};
  }
  const int rounds = 2 * ceil_log2(most_in_a_group(used, level.joint_size / level.unit_size));
  sum_ns_ = saturating_add(sum_ns_, saturating_mul(rounds, level.latency_ns));
}

int16_t Network::levels_between(int32_t sender, int32_t receiver) const {
  // Workers share a unit of level k when they are in the same unit below level k + 1; all share one
  // unit of the last level.
  if (sender == receiver) return 0;
  size_t levels = 1;
  while (levels < latency_ns_.size() && up_wire(sender, levels) != up_wire(receiver, levels))
    ++levels;
  return static_cast<int16_t>(levels);
}

bool Network::advance(Transit& message, int64_t now_ns, int64_t& when_ns) {
  when_ns = now_ns;
  if (message.levels == 0) return true;
  const size_t num_levels = latency_ns_.size();
  const Toll* tolls = &tolls_[static_cast<size_t>(message.lane) * num_levels];
  const auto highest = static_cast<size_t>(message.levels - 1);
  if (!tolls[highest].copies) {
    when_ns = saturating_add(now_ns, latency_ns_[highest]);
    return true;
  }
  const bool arrives = schedule::pass_wires(
      message.levels, message.hop, message.end_ns, now_ns, when_ns, [&](bool up, size_t level) {
        message.wire = up ? up_wire(message.sender, level) : up_wire(message.receiver, level) + 1;
        return schedule::reserve_wire(wires_[static_cast<size_t>(message.wire)].free_ns,
                                      tolls[level].busy_ns, now_ns);
      });
  if (arrives) when_ns = saturating_add(when_ns, latency_ns_[highest]);
  return arrives;
}

}  // namespace penstock::simulate::detail
