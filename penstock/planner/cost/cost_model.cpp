#include "penstock/planner/cost/cost_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/planner/cost/cost_models.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/rounding.h"

namespace penstock::planner {

namespace {

// Bytes times 2(m-1)/m, at a bandwidth, rounded up. 128 bits hold every product of these ranges.
int64_t exact_ring_ns(int64_t weight_bytes, int replicas, int64_t bandwidth_bytes_per_s) {
  const __int128 moved =
      (static_cast<__int128>(weight_bytes) * 2 * (replicas - 1) + replicas - 1) / replicas;
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
          segment.weight_bytes, on_device_ns(segment.accumulate_ns, speed)};
}

CostModel::CostModel(const cluster::Cluster& cluster, GradientSync sync)
    : topology_(cluster), sync_(sync) {
  for (int level = 0; level <= topology_.num_levels(); ++level) {
    ns_per_byte_.push_back(1e9 / static_cast<double>(topology_.path(level).bandwidth_bytes_per_s));
  }
  servers_ = cluster.cpu_machines.count *
             static_cast<double>(cluster.cpu_machines.bandwidth_bytes_per_s) /
             static_cast<double>(topology_.path(topology_.num_levels()).bandwidth_bytes_per_s);
}

double CostModel::ring_ns(double weight_bytes, int replicas, int level, double divisor) const {
  // One division, so that rounding cannot make it rise where the exact value falls.
  const double factor = 2.0 * (replicas - 1) / (static_cast<double>(replicas) * divisor);
  return latency_ns(level) / divisor + weight_bytes * ns_per_byte(level) * factor;
}

bool CostModel::all_reduces() const {
  return sync_ == GradientSync::Ordered || sync_ == GradientSync::Ring || !(servers_ > 0);
}

double CostModel::service_factor(double replicas) const {
  const double n = replicas;
  if (all_on_servers(sync_)) return std::max(1.0, n / servers_);
  return servers_ >= n ? 1.0 : 2.0 * n * (n - 1) / (n * n + servers_ * (n - 2));
}

double CostModel::sync_time_ns(double weight_bytes, int replicas, int level, double divisor) const {
  if (all_reduces()) return ring_ns(weight_bytes, replicas, level, divisor);
  const int top = topology_.num_levels();
  // Where the servers' NICs are the bottleneck the time per replica is the same for any number of
  // them: no rounding may come in between.
  const double factor = all_on_servers(sync_) && replicas > servers_ && divisor > 1
                            ? 1.0 / servers_
                            : service_factor(replicas) / divisor;
  const double service_ns = latency_ns(top) / divisor + weight_bytes * ns_per_byte(top) * factor;
  if (all_on_servers(sync_)) return service_ns;
  return std::min(service_ns, ring_ns(weight_bytes, replicas, level, divisor));
}

SegmentBound CostModel::least_sync_ns(int replicas, int level) const {
  if (replicas <= 1) return {};
  const int top = topology_.num_levels();
  const SegmentBound ring{.per_weight_byte = ns_per_byte(level) * 2 * (replicas - 1) / replicas,
                          .fixed_ns = latency_ns(level)};
  if (all_reduces()) return ring;
  const SegmentBound service{.per_weight_byte = ns_per_byte(top) * service_factor(replicas),
                             .fixed_ns = latency_ns(top)};
  if (all_on_servers(sync_)) return service;
  return {.per_weight_byte = std::min(ring.per_weight_byte, service.per_weight_byte),
          .fixed_ns = std::min(ring.fixed_ns, service.fixed_ns)};
}

SegmentBound CostModel::least_worker_ns(int /*replicas*/, int /*level*/,
                                        int64_t /*micro_batches*/) const {
  return {};
}

int64_t CostModel::sync_ns(int64_t weight_bytes, int replicas, int level) const {
  if (replicas <= 1) return 0;
  if (all_reduces()) {
    const cluster::Path& path = topology_.path(level);
    return saturating_add(exact_ring_ns(weight_bytes, replicas, path.bandwidth_bytes_per_s),
                          path.latency_ns);
  }
  return rounded_up(sync_time_ns(static_cast<double>(weight_bytes), replicas, level, 1));
}

const std::vector<std::string>& cost_model_names() {
  static const std::vector<std::string> names{"penstock", "sosp2019", "released", "report2018"};
  return names;
}

std::unique_ptr<CostModel> make_cost_model(std::string_view name, const cluster::Cluster& cluster,
                                           GradientSync sync) {
  if (name == "penstock") return make_penstock_model(cluster, sync);
  if (name == "sosp2019") return make_sosp2019_model(cluster, sync);
  if (name == "released") return make_released_model(cluster, sync);
  if (name == "report2018") return make_report2018_model(cluster, sync);
  throw ConfigError(fmt::format("unknown cost model '{}'; expected one of {}", name,
                                fmt::join(cost_model_names(), ", ")));
}

}  // namespace penstock::planner
