#include "penstock/planner/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"

namespace penstock::planner {

namespace {

double to_double(int64_t value) { return static_cast<double>(value); }

// ceil(compute / limit), a lower bound on the replicas under every model, lowered by one against rounding.
int compute_bound(const SegmentCost& segment, double limit_ns, int least, int most) {
  if (segment.compute_ns == 0) return least;
  const double bound = std::ceil(to_double(segment.compute_ns) / limit_ns) - 1;
  if (!(bound < most)) return most;
  return std::max(least, static_cast<int>(bound));
}

class Sosp2019 final : public CostModel {
 public:
  using CostModel::CostModel;
  std::string_view name() const override { return "sosp2019"; }

  double stage_ns(const SegmentCost& segment, int replicas, int64_t /*micro_batches*/) const override {
    const double sync_ns = 2.0 * (replicas - 1) * to_double(segment.weight_bytes) * 1e9 / to_double(network_.bandwidth_bytes_per_s);
    return std::max(to_double(segment.compute_ns), sync_ns) / replicas;
  }

  double cut_ns(int64_t bytes) const override { return 2.0 * to_double(bytes) * 1e9 / to_double(network_.bandwidth_bytes_per_s); }

  // The compute part falls with the replicas and the sync part rises: past the first count where compute fits, waiting does not help.
  int fewest_replicas(const SegmentCost& segment, double limit_ns, int least, int most, int64_t micro_batches) const override {
    for (int m = compute_bound(segment, limit_ns, least, most); m <= most; ++m) {
      if (stage_ns(segment, m, micro_batches) <= limit_ns) return m;
      if (to_double(segment.compute_ns) / m <= limit_ns) return 0;
    }
    return 0;
  }
};

class Penstock final : public CostModel {
 public:
  using CostModel::CostModel;
  std::string_view name() const override { return "penstock"; }

  double stage_ns(const SegmentCost& segment, int replicas, int64_t micro_batches) const override {
    const int64_t step_size = micro_batches > 0 ? micro_batches : replicas;
    const double share = to_double(ceil_div(step_size, replicas));
    return (share * to_double(segment.compute_ns) + sync_part_ns(segment, replicas) + to_double(segment.step_ns)) / to_double(step_size);
  }

  double cut_ns(int64_t bytes) const override {
    const double latency_ns = to_double(network_.latency_ns);
    if (network_.by_reference) return latency_ns;
    return 2.0 * to_double(bytes) * 1e9 / to_double(network_.bandwidth_bytes_per_s) + latency_ns;
  }

  int fewest_replicas(const SegmentCost& segment, double limit_ns, int least, int most, int64_t micro_batches) const override {
    if (least > most) return 0;
    return micro_batches > 0 ? fewest_for_step(segment, limit_ns, least, most, micro_batches)
                             : fewest_for_round(segment, limit_ns, least, most);
  }

 private:
  double sync_part_ns(const SegmentCost& segment, int replicas) const {
    if (replicas == 1) return 0;
    return 2.0 * (replicas - 1) / replicas * to_double(segment.weight_bytes) * 1e9 / to_double(network_.bandwidth_bytes_per_s) +
           to_double(network_.latency_ns);
  }

  // One round per step: a/m + b(m-1)/m^2 falls for m >= 2, so bisect there; m = 1, which pays no sync, stands apart.
  int fewest_for_round(const SegmentCost& segment, double limit_ns, int least, int most) const {
    if (least == 1 && stage_ns(segment, 1, 0) <= limit_ns) return 1;
    int low = std::max(2, compute_bound(segment, limit_ns, least, most));
    int high = most;
    if (low > high || stage_ns(segment, high, 0) > limit_ns) return 0;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (stage_ns(segment, middle, 0) <= limit_ns) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // A fixed step size: time changes for the better only where ceil(u/m) falls.
  int fewest_for_step(const SegmentCost& segment, double limit_ns, int least, int most, int64_t step_size) const {
    int64_t m = compute_bound(segment, limit_ns, least, most);
    while (m <= most) {
      if (stage_ns(segment, static_cast<int>(m), step_size) <= limit_ns) return static_cast<int>(m);
      const int64_t share = ceil_div(step_size, m);
      if (share <= 1) return 0;
      m = ceil_div(step_size, share - 1);
    }
    return 0;
  }
};

}  // namespace

std::unique_ptr<CostModel> make_cost_model(std::string_view name, const cluster::Cluster& cluster) {
  const simulate::Network network = simulate::flat_network(cluster);
  if (name == "penstock") return std::make_unique<Penstock>(network);
  if (name == "sosp2019") return std::make_unique<Sosp2019>(network);
  throw ConfigError(fmt::format("unknown cost model '{}'; expected penstock or sosp2019", name));
}

}  // namespace penstock::planner
