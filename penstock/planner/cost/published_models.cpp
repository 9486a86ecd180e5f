// The cost models that were published with PipeDream. docs/planner.md has their formulas side by
// side.
#include "penstock/planner/cost/cost_models.h"

namespace penstock::planner {

namespace {

double as_double(int64_t value) { return static_cast<double>(value); }

// max(C, 2(m-1) W/B) / m: the synchronisation term rises with the replicas.
class Sosp2019 final : public CostModel {
 public:
  using CostModel::CostModel;
  std::string_view name() const override { return "sosp2019"; }

  double stage_ns(const SegmentCost& segment, int replicas, int level,
                  int64_t /*micro_batches*/) const override {
    const double sync_ns =
        2.0 * (replicas - 1) * as_double(segment.weight_bytes) * sum_ns_per_byte(level);
    return std::max(as_double(segment.compute_ns), sync_ns) / replicas;
  }

  double message_cut_ns(int64_t bytes, int level) const override {
    return 2.0 * as_double(bytes) * ns_per_byte(level);
  }

  // Past the first count where the computation fits, waiting does not help.
  int fewest_replicas(const SegmentCost& segment, double limit_ns, int least, int most, int level,
                      int64_t micro_batches) const override {
    for (int m = compute_bound(as_double(segment.compute_ns), limit_ns, least, most); m <= most;
         ++m) {
      if (stage_ns(segment, m, level, micro_batches) <= limit_ns) return m;
      if (as_double(segment.compute_ns) / m <= limit_ns) return 0;
    }
    return 0;
  }

  SegmentBound least_worker_ns(int replicas, int level, int64_t /*micro_batches*/) const override {
    if (replicas == 1) return {};
    return {.per_compute_ns = 0, .per_weight_byte = 2.0 * (replicas - 1) * sum_ns_per_byte(level)};
  }
};

// C and 4(m-1) W/(mB), combined by sum or maximum, over m. One replica pays no synchronisation and
// stands apart; from two on the time falls.
class FourTransfers : public CostModel {
 public:
  using CostModel::CostModel;

 protected:
  // 4(m-1)/m^2 W/B, in one division against rounding.
  double sync_share_ns(const SegmentCost& segment, int replicas, int level) const {
    const double m = replicas;
    return 4.0 * (m - 1) / (m * m) * (as_double(segment.weight_bytes) * sum_ns_per_byte(level));
  }

  template <class Time>
  static int fewest(const Time& time, double limit_ns, int least, int most, double guess) {
    if (least <= 1 && most >= 1 && time(1) <= limit_ns) return 1;
    return first_within(time, limit_ns, std::max(2, least), most, guess);
  }
};

class Released final : public FourTransfers {
 public:
  using FourTransfers::FourTransfers;
  std::string_view name() const override { return "released"; }

  double stage_ns(const SegmentCost& segment, int replicas, int level,
                  int64_t /*micro_batches*/) const override {
    return as_double(segment.compute_ns) / replicas + sync_share_ns(segment, replicas, level);
  }

  double message_cut_ns(int64_t /*bytes*/, int /*level*/) const override { return 0; }

  int fewest_replicas(const SegmentCost& segment, double limit_ns, int least, int most, int level,
                      int64_t /*micro_batches*/) const override {
    const double transfers_ns = 4 * as_double(segment.weight_bytes) * sum_ns_per_byte(level);
    return fewest([&](int m) { return stage_ns(segment, m, level, 0); }, limit_ns, least, most,
                  replicas_at(as_double(segment.compute_ns), transfers_ns, limit_ns));
  }

  SegmentBound least_worker_ns(int replicas, int level, int64_t /*micro_batches*/) const override {
    return {.per_weight_byte = 4.0 * (replicas - 1) / replicas * sum_ns_per_byte(level)};
  }
};

class Report2018 final : public FourTransfers {
 public:
  using FourTransfers::FourTransfers;
  std::string_view name() const override { return "report2018"; }

  double stage_ns(const SegmentCost& segment, int replicas, int level,
                  int64_t /*micro_batches*/) const override {
    return std::max(as_double(segment.compute_ns) / replicas,
                    sync_share_ns(segment, replicas, level));
  }

  double message_cut_ns(int64_t bytes, int level) const override {
    return 2.0 * as_double(bytes) * ns_per_byte(level);
  }

  int fewest_replicas(const SegmentCost& segment, double limit_ns, int least, int most, int level,
                      int64_t /*micro_batches*/) const override {
    const double transfers_ns = 4 * as_double(segment.weight_bytes) * sum_ns_per_byte(level);
    return fewest([&](int m) { return stage_ns(segment, m, level, 0); }, limit_ns, least, most,
                  std::max(std::ceil(as_double(segment.compute_ns) / limit_ns),
                           replicas_at(0, transfers_ns, limit_ns)));
  }

  SegmentBound least_worker_ns(int replicas, int level, int64_t /*micro_batches*/) const override {
    if (replicas == 1) return {};
    return {.per_compute_ns = 0,
            .per_weight_byte = 4.0 * (replicas - 1) / replicas * sum_ns_per_byte(level)};
  }
};

}  // namespace

std::unique_ptr<CostModel> make_sosp2019_model(const cluster::Cluster& cluster, GradientSync sync,
                                               SyncOverlap overlap, FloatType precision) {
  return std::make_unique<Sosp2019>(cluster, sync, overlap, precision);
}

std::unique_ptr<CostModel> make_released_model(const cluster::Cluster& cluster, GradientSync sync,
                                               SyncOverlap overlap, FloatType precision) {
  return std::make_unique<Released>(cluster, sync, overlap, precision);
}

std::unique_ptr<CostModel> make_report2018_model(const cluster::Cluster& cluster, GradientSync sync,
                                                 SyncOverlap overlap, FloatType precision) {
  return std::make_unique<Report2018>(cluster, sync, overlap, precision);
}

}  // namespace penstock::planner
