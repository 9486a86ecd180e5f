#include "penstock/planner/cost/cost_model.h"

#include <algorithm>

#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::planner {

namespace {

// Bytes times a fraction, at a bandwidth, rounded up. 128 bits hold every product of these ranges.
int64_t exact_ns(int64_t weight_bytes, int64_t numerator, int64_t denominator,
                 int64_t bandwidth_bytes_per_s) {
  const __int128 moved =
      (static_cast<__int128>(weight_bytes) * numerator + denominator - 1) / denominator;
  const __int128 ns = (moved * 1'000'000'000 + bandwidth_bytes_per_s - 1) / bandwidth_bytes_per_s;
  return ns > INT64_MAX ? INT64_MAX : static_cast<int64_t>(ns);
}

}  // namespace

int64_t on_device_ns(int64_t ns, double speed) {
  if (speed == 1.0) return ns;
  return rounded_up(static_cast<double>(ns) / speed);
}

SegmentCost on_device(const SegmentCost& segment, double speed) {
  return {on_device_ns(segment.compute_ns, speed), on_device_ns(segment.step_ns, speed),
          segment.weight_bytes, on_device_ns(segment.accumulate_ns, speed),
          on_device_ns(segment.overlap_ns, speed)};
}

CostModel::CostModel(const cluster::Cluster& cluster, GradientSync sync, SyncOverlap overlap,
                     FloatType precision)
    : topology_(cluster), sync_(sync), overlap_(overlap), precision_(precision) {
  const auto ns_of = [](int64_t bandwidth_bytes_per_s) {
    return 1e9 / static_cast<double>(bandwidth_bytes_per_s);
  };
  own_ns_per_byte_.push_back(0);
  own_bandwidth_bytes_per_s_.push_back(0);
  sum_bandwidth_bytes_per_s_.push_back(topology_.path(0).bandwidth_bytes_per_s);
  for (int l = 1; l <= topology_.num_levels(); ++l) {
    const cluster::Level& level = cluster.levels[static_cast<size_t>(l) - 1];
    const int64_t rate = topology_.path(l).by_reference
                             ? level.bandwidth_bytes_per_s
                             : plan::gradient_rate(level.bandwidth_bytes_per_s, precision_);
    own_ns_per_byte_.push_back(level.count > 1 ? ns_of(rate) : 0);
    own_bandwidth_bytes_per_s_.push_back(level.count > 1 ? rate : 0);
    const int64_t inner = sum_bandwidth_bytes_per_s_.back();
    sum_bandwidth_bytes_per_s_.push_back(level.count > 1 ? std::min(inner, rate) : inner);
  }
  for (int level = 0; level <= topology_.num_levels(); ++level) {
    ns_per_byte_.push_back(ns_of(topology_.path(level).bandwidth_bytes_per_s));
    sum_ns_per_byte_.push_back(ns_of(sum_bandwidth_bytes_per_s_[static_cast<size_t>(level)]));
    constexpr int64_t kBytes = 1'000'000'000;
    const auto sent = static_cast<double>(wire_bytes(kBytes, level)) / kBytes;
    const cluster::Path& path = topology_.path(level);
    processor_ns_per_byte_.push_back(
        path.by_reference ? 0 : static_cast<double>(path.processor_ns_per_gb) / kBytes * sent);
  }
  if (sync == GradientSync::Hierarchical)
    machine_size_ = topology_.unit_size(cluster.machine_level());
  if (machine_size_ > 1) {
    machine_level_ = cluster.machine_level();
    machine_ = cluster.machine;
  }
  if (machine_) {
    for (int64_t* rate : {&machine_->device_bytes_per_s, &machine_->switch_bytes_per_s,
                          &machine_->cross_bytes_per_s, &machine_->nvlink_bytes_per_s})
      *rate = plan::gradient_rate(*rate, precision_);
  }
  network_ns_per_byte_ = sum_ns_per_byte_.back();
  network_bytes_per_s_ = topology_.path(topology_.num_levels()).bandwidth_bytes_per_s;
  if (machine_size_ > 1 && machine_size_ < topology_.num_workers()) {
    network_bytes_per_s_ = INT64_MAX;
    network_ns_per_byte_ = 0;
    for (size_t l = static_cast<size_t>(machine_level_); l < cluster.levels.size(); ++l) {
      if (cluster.levels[l].count == 1) continue;
      network_bytes_per_s_ =
          std::min(network_bytes_per_s_, cluster.levels[l].bandwidth_bytes_per_s);
      network_ns_per_byte_ = std::max(network_ns_per_byte_, own_ns_per_byte_[l + 1]);
    }
  }
  servers_ = cluster.cpu_machines.count *
             static_cast<double>(cluster.cpu_machines.bandwidth_bytes_per_s) /
             static_cast<double>(network_bytes_per_s_);
}

void CostModel::add_low_rank(double share) {
  share_ = share;
  // As if so many times the bytes passed.
  for (std::vector<double>* cost : {&sum_ns_per_byte_, &own_ns_per_byte_, &processor_ns_per_byte_})
    for (double& ns : *cost) ns *= share;
  for (std::vector<int64_t>* rates : {&sum_bandwidth_bytes_per_s_, &own_bandwidth_bytes_per_s_})
    for (int64_t& rate : *rates)
      rate = static_cast<int64_t>(std::min(static_cast<double>(rate) / share, 0x1p62));
}

CostModel::Members CostModel::members(int replicas, Machines machines, double divisor) const {
  const double m = replicas;
  const double size = machine_size_;
  double on = std::max(m, 2 * size);
  if (machines == Machines::RoundedUp) on = size * std::max(2.0, std::ceil(m / size));
  if (machines == Machines::RoundedDown) on = size * std::max(2.0, std::floor(m / size));
  return {.replicas = replicas, .on = on, .divisor = divisor};
}

double CostModel::links_ns_per_byte(double on, int below, int level, double divisor) const {
  const double size = topology_.unit_size(below);
  double slowest = 0;
  for (int l = below + 1; l <= level; ++l) {
    // One division each, so that rounding cannot make it rise where the exact value falls.
    const double unit = topology_.unit_size(l - 1);
    double factor = 2.0 * (unit / size) * (on - unit) / (on * divisor);
    if (on <= 2 * unit) {
      // Per replica it must not rise with their number: so odd numbers count as even ones there.
      const double n = on / size;
      factor =
          divisor > 1 ? on / (2 * size * divisor) : 2 * std::floor(n / 2) * std::ceil(n / 2) / n;
    }
    slowest = std::max(slowest, own_ns_per_byte_[static_cast<size_t>(l)] * factor);
  }
  return slowest;
}

plan::MachineSum CostModel::inside_sum(int replicas, int level, double network) const {
  const int unit = topology_.unit_size(level);
  const int under_switch = machine_size_ / machine_->switches;
  return plan::best_machine_sum(*machine_, {.devices = machine_size_,
                                            .replicas = std::min(replicas, unit),
                                            .one_switch = under_switch % unit == 0,
                                            .network = network});
}

double CostModel::inside_ns_per_byte(const Members& members, int level, double network) const {
  if (machine_size_ == 1) return 0;
  if (machine_) return inside_sum(members.replicas, level, network).ns() / members.divisor;
  return links_ns_per_byte(std::min(members.replicas, machine_size_), 0, level, members.divisor);
}

double CostModel::peers_factor(const Members& members, int level) const {
  if (level <= machine_level_) return 0;
  const double n = count(members);
  return 2 * (n - 1) / n;
}

double CostModel::peers_ns_per_byte(const Members& members, int level) const {
  if (sync_ == GradientSync::Ring) {
    const double m = members.replicas;
    return sum_ns_per_byte(level) * (2.0 * (m - 1) / (m * members.divisor));
  }
  return std::max(
      links_ns_per_byte(members.on, machine_level_, level, members.divisor),
      inside_ns_per_byte(members, std::min(level, machine_level_), peers_factor(members, level)));
}

bool CostModel::all_reduces() const {
  return sync_ == GradientSync::Ordered || sync_ == GradientSync::Ring ||
         sync_ == GradientSync::DiLoCo || sync_ == GradientSync::PowerSgd || !(servers_ > 0);
}

double CostModel::service_factor(double count) const {
  const double n = count;
  if (all_on_servers(sync_)) return std::max(1.0, n / servers_);
  return servers_ >= n ? 1.0 : 2.0 * n * (n - 1) / (n * n + servers_ * (n - 2));
}

SumTime CostModel::service_ns_per_byte(const Members& members) const {
  const double n = count(members);
  const double divisor = members.divisor;
  const double top_ns = network_ns_per_byte_;
  const bool servers_add_all = all_on_servers(sync_) || servers_ >= n;
  // The part that each replica adds.
  const double own = servers_add_all ? 0 : (n - servers_) / (n * n + servers_ * (n - 2));
  SumTime time;
  // Where the servers' NICs are the bottleneck the time per replica is the same for any number of
  // them: no rounding may come in between.
  time.server_ns =
      top_ns * (all_on_servers(sync_) && n > servers_ && divisor > 1 ? 1.0 / servers_
                                                                     : service_factor(n) / divisor);
  time.wire_ns = inside_ns_per_byte(members, machine_level_, service_factor(n));
  for (int l = machine_level_ + 1; l <= topology_.num_levels(); ++l) {
    // Out of a unit with r members pass r (2 (n-r) own + 1 - n own).
    const double unit = topology_.unit_size(l - 1);
    double r = std::min(unit / machine_size_, n);
    if (own > 0) r = std::min(r, n / 2 + (1 - n * own) / (4 * own));
    const double factor = servers_add_all ? std::min(unit, members.on) / (machine_size_ * divisor)
                                          : r * (1 + (n - 2 * r) * own) / divisor;
    time.wire_ns = std::max(time.wire_ns, own_ns_per_byte_[static_cast<size_t>(l)] * factor);
  }
  return time;
}

bool CostModel::uses_servers(int64_t weight_bytes, int replicas, int level) const {
  if (all_reduces() || replicas <= 1) return false;
  if (all_on_servers(sync_)) return true;
  const Members those = counted(replicas, 1);
  const SumTime service = service_ns_per_byte(those);
  const auto bytes = static_cast<double>(weight_bytes);
  const double service_ns =
      latency_ns(topology_.num_levels()) + bytes * std::max(service.wire_ns, service.server_ns);
  return service_ns < latency_ns(level) + bytes * peers_ns_per_byte(those, level);
}

double CostModel::sync_time_ns(double weight_bytes, int replicas, int level, double divisor) const {
  return whole_sum_ns(weight_bytes, replicas, level, divisor) / static_cast<double>(sync_every_);
}

double CostModel::whole_sum_ns(double weight_bytes, int replicas, int level, double divisor) const {
  const Members those = counted(replicas, divisor);
  const double peers_ns =
      latency_ns(level) / divisor + weight_bytes * peers_ns_per_byte(those, level);
  if (all_reduces()) return peers_ns;
  const SumTime service = service_ns_per_byte(those);
  const double service_ns = latency_ns(topology_.num_levels()) / divisor +
                            weight_bytes * std::max(service.wire_ns, service.server_ns);
  if (all_on_servers(sync_)) return service_ns;
  return std::min(service_ns, peers_ns);
}

SegmentBound CostModel::least_sync_ns(int replicas, int level) const {
  if (replicas <= 1) return {};
  const Members fewest = members(replicas, Machines::RoundedDown);
  const auto every = static_cast<double>(sync_every_);
  const SegmentBound peers{.per_weight_byte = peers_ns_per_byte(fewest, level) / every,
                           .fixed_ns = latency_ns(level) / every};
  if (all_reduces()) return peers;
  const SumTime time = service_ns_per_byte(fewest);
  const SegmentBound service{.per_weight_byte = std::max(time.wire_ns, time.server_ns),
                             .fixed_ns = latency_ns(topology_.num_levels())};
  if (all_on_servers(sync_)) return service;
  return {.per_weight_byte = std::min(peers.per_weight_byte, service.per_weight_byte),
          .fixed_ns = std::min(peers.fixed_ns, service.fixed_ns)};
}

SegmentBound CostModel::least_worker_ns(int /*replicas*/, int /*level*/,
                                        int64_t /*micro_batches*/) const {
  return {};
}

int CostModel::waiting_level(int level) const {
  while (level > 0 && !waits_for_sums(level)) --level;
  return level;
}

double CostModel::processor_ns_per_byte(int replicas, int level, bool servers,
                                        double divisor) const {
  const auto cost_at = [&](int at) { return processor_ns_per_byte_[static_cast<size_t>(at)]; };
  const double outer_ns =
      cost_at(servers ? topology_.num_levels() : level) / static_cast<double>(sync_every_);
  if (outer_ns == 0) return 0;
  const double m = replicas;
  if (machine_size_ == 1) {
    if (!servers) return outer_ns * (2.0 * (m - 1) / (m * divisor));
    return outer_ns * ((all_on_servers(sync_) ? 1 : service_factor(m)) / divisor);
  }
  // As members(), so that it falls with the replicas where it is divided by them.
  const double size = machine_size_;
  const double r = std::min(m, size);
  const double n = std::max(2.0, m / size);
  const double inside_ns =
      cost_at(std::min(level, machine_level_)) * (2.0 * (r - 1) / (r * divisor));
  if (!servers && level <= machine_level_) return inside_ns;
  const double sent = servers ? service_factor(n) : 2.0 * (n - 1) / n;
  return inside_ns + outer_ns * (sent / (size * divisor));
}

double CostModel::processor_time_ns(double weight_bytes, int replicas, int level,
                                    double divisor) const {
  if (replicas <= 1) return 0;
  const double peers_ns = processor_ns_per_byte(replicas, level, false, divisor);
  if (all_reduces()) return weight_bytes * peers_ns;
  const double service_ns = processor_ns_per_byte(replicas, level, true, divisor);
  if (all_on_servers(sync_)) return weight_bytes * service_ns;
  return weight_bytes * std::min(peers_ns, service_ns);
}

int64_t CostModel::processor_ns(int64_t weight_bytes, int replicas, int level, bool servers) const {
  if (replicas <= 1) return 0;
  return rounded_up(static_cast<double>(weight_bytes) *
                    processor_ns_per_byte(replicas, level, servers, 1));
}

int64_t CostModel::short_messages_ns(int64_t bucket_bytes, int replicas, int level,
                                     bool servers) const {
  constexpr int64_t kMeasuredBytes = 256 << 10;
  const cluster::Path& path = topology_.path(servers ? topology_.num_levels() : level);
  if (replicas <= 1 || path.by_reference || path.processor_ns_per_message == 0) return 0;
  const int64_t inside = std::min(replicas, machine_size_);
  const int64_t others = inside - 1 + (replicas + machine_size_ - 1) / machine_size_ - 1;
  const int64_t messages = servers ? 1 : 2 * others;
  const int64_t sent = saturating_mul(2, wire_bytes(bucket_bytes, level));
  const int64_t covered = ceil_mul_div(sent, replicas - 1, replicas) / kMeasuredBytes;
  return saturating_mul(std::max<int64_t>(messages - covered, 0), path.processor_ns_per_message);
}

double CostModel::least_sum_ns(const SegmentCost& segment, int replicas, int level) const {
  if (replicas <= 1) return 0;
  const auto bytes = static_cast<double>(segment.weight_bytes);
  const auto sync_at = [&](int at) { return sync_time_ns(bytes, replicas, at, 1); };
  const double processor_ns = processor_time_ns(bytes, replicas, level, 1);
  if (!hides(level)) return std::max(processor_ns, sync_at(level));
  const int inner = waiting_level(level);
  const double inner_ns = inner > 0 ? sync_at(inner) : 0;
  return std::max(
      {inner_ns, processor_ns, sync_at(level) - static_cast<double>(segment.overlap_ns)});
}

int64_t CostModel::wire_ns(int64_t weight_bytes, int replicas, int level, bool servers) const {
  if (replicas <= 1) return 0;
  const Members those = counted(replicas, 1);
  const auto bytes = static_cast<double>(weight_bytes);
  const int64_t m = replicas;
  if (sync_ == GradientSync::Ring)
    return exact_ns(weight_bytes, 2 * (m - 1), m,
                    sum_bandwidth_bytes_per_s_[static_cast<size_t>(level)]);
  const auto units = static_cast<int64_t>(count(those));
  const int64_t between_ns = servers ? rounded_up(bytes * service_ns_per_byte(those).wire_ns)
                                     : links_wire_ns(weight_bytes, units, machine_level_, level);
  if (machine_size_ == 1) return between_ns;
  if (machine_ && servers) return between_ns;
  const int inner = std::min(level, machine_level_);
  const int64_t inside_ns =
      machine_ ? rounded_up(bytes * inside_ns_per_byte(those, inner, peers_factor(those, level)))
               : links_wire_ns(weight_bytes, std::min(replicas, machine_size_), 0, inner);
  return std::max(inside_ns, between_ns);
}

int64_t CostModel::links_wire_ns(int64_t weight_bytes, int64_t units, int below, int level) const {
  int64_t slowest_ns = 0;
  for (int l = below + 1; l <= level; ++l) {
    const int64_t bandwidth = own_bandwidth_bytes_per_s_[static_cast<size_t>(l)];
    if (bandwidth == 0) continue;
    const int64_t unit = topology_.unit_size(l - 1) / topology_.unit_size(below);
    const bool few = units <= 2 * unit;
    const int64_t pairs = few ? units / 2 * ((units + 1) / 2) : unit * (units - unit);
    slowest_ns = std::max(slowest_ns, exact_ns(weight_bytes, 2 * pairs, units, bandwidth));
  }
  return slowest_ns;
}

int64_t CostModel::server_ns(int64_t weight_bytes, int replicas) const {
  return rounded_up(static_cast<double>(weight_bytes) *
                    service_ns_per_byte(counted(replicas, 1)).server_ns);
}

std::optional<plan::MachineSum> CostModel::machine_sum(int64_t weight_bytes, int replicas,
                                                       int level) const {
  if (!machine_ || replicas <= 1) return std::nullopt;
  const Members those = counted(replicas, 1);
  const double network = uses_servers(weight_bytes, replicas, level) ? service_factor(count(those))
                                                                     : peers_factor(those, level);
  return inside_sum(replicas, std::min(level, machine_level_), network);
}

int64_t CostModel::sync_latency_ns(int level, bool servers) const {
  return topology_.path(servers ? topology_.num_levels() : level).latency_ns;
}

int64_t CostModel::sync_ns(int64_t weight_bytes, int replicas, int level) const {
  if (replicas <= 1) return 0;
  const bool servers = uses_servers(weight_bytes, replicas, level);
  const int64_t wire = wire_ns(weight_bytes, replicas, level, servers);
  const int64_t server = servers ? server_ns(weight_bytes, replicas) : 0;
  const int64_t whole = saturating_add(std::max(wire, server), sync_latency_ns(level, servers));
  return ceil_div(whole, sync_every_);
}

}  // namespace penstock::planner
