// The default cost model: what the runtime does. A replica computes its share of a step's
// micro-batches, synchronises its gradients, steps. Sums between ranks travel under the last
// backward pass and the next forward pass of the step.
#include "penstock/planner/cost/cost_models.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

namespace {

double to_double(int64_t value) { return static_cast<double>(value); }

class Penstock final : public CostModel {
 public:
  using CostModel::CostModel;
  std::string_view name() const override { return "penstock"; }

  double stage_ns(const SegmentCost& segment, int replicas, int level,
                  int64_t micro_batches) const override {
    if (micro_batches <= 0) return round_ns(segment, replicas, level);
    const double share = to_double(ceil_div(micro_batches, replicas));
    return (share * to_double(segment.compute_ns) + (share - 1) * to_double(segment.accumulate_ns) +
            once_per_step_ns(segment, replicas, level)) /
           to_double(micro_batches);
  }

  double message_cut_ns(int64_t bytes, int level) const override {
    if (topology().path(level).by_reference) return latency_ns(level);
    return 2.0 * to_double(bytes) * ns_per_byte(level) + latency_ns(level);
  }

  int fewest_replicas(const SegmentCost& segment, double limit_ns, int least, int most, int level,
                      int64_t micro_batches) const override {
    if (least > most) return 0;
    return micro_batches > 0 ? fewest_for_step(segment, limit_ns, least, most, level, micro_batches)
                             : fewest_for_round(segment, limit_ns, least, most, level);
  }

  SegmentBound least_worker_ns(int replicas, int level, int64_t micro_batches) const override {
    // A sum that computation hides adds nothing.
    SegmentBound bound =
        hides(topology().num_levels()) ? SegmentBound{} : least_sync_ns(replicas, level);
    bound.per_step_ns = 1;
    if (micro_batches <= 0) return bound;
    // Every replica synchronises and steps once per `micro_batches`.
    const double share = replicas / to_double(micro_batches);
    return {1, share, bound.per_weight_byte * share, bound.fixed_ns * share};
  }

 private:
  // A step of one micro-batch per replica.
  double round_ns(const SegmentCost& segment, int replicas, int level) const {
    const double work_ns = to_double(segment.compute_ns) + to_double(segment.step_ns);
    if (replicas == 1) return work_ns;
    const double bytes = to_double(segment.weight_bytes);
    const auto waits_ns = [&](int at) { return sync_time_ns(bytes, replicas, at, replicas); };
    const double processor_ns = processor_time_ns(bytes, replicas, level, replicas);
    if (!hides(level)) return work_ns / replicas + std::max(processor_ns, waits_ns(level));
    const double rest_ns = work_ns - to_double(segment.overlap_ns);
    const int inner = waiting_level(level);
    return std::max(work_ns / replicas + std::max(processor_ns, inner > 0 ? waits_ns(inner) : 0),
                    rest_ns / replicas + waits_ns(level));
  }

  double once_per_step_ns(const SegmentCost& segment, int replicas, int level) const {
    return least_sum_ns(segment, replicas, level) + to_double(segment.step_ns);
  }

  // One replica, which pays no synchronisation, stands apart; from two on the time falls.
  int fewest_for_round(const SegmentCost& segment, double limit_ns, int least, int most,
                       int level) const {
    const double work_ns = to_double(segment.compute_ns) + to_double(segment.step_ns);
    if (least <= 1 && work_ns <= limit_ns) return 1;
    const double guess =
        replicas_at(work_ns + latency_ns(level),
                    2 * to_double(segment.weight_bytes) * sum_ns_per_byte(level), limit_ns);
    return first_within([&](int m) { return round_ns(segment, m, level); }, limit_ns,
                        std::max(2, least), most, std::ceil(guess));
  }

  // A fixed step size: time changes for the better only where the share ceil(u/m) falls, and what
  // is done once per step never falls with m. So a count that fails rules out all that keep the
  // share above what would fit with its synchronisation.
  int fewest_for_step(const SegmentCost& segment, double limit_ns, int least, int most, int level,
                      int64_t step_size) const {
    const double compute_ns = to_double(segment.compute_ns);
    const double accumulate_ns = to_double(segment.accumulate_ns);
    int64_t m = compute_bound(compute_ns, limit_ns, least, most);
    while (m <= most) {
      if (stage_ns(segment, static_cast<int>(m), level, step_size) <= limit_ns)
        return static_cast<int>(m);
      const int64_t share = ceil_div(step_size, m);
      if (share <= 1) return 0;
      // One more than what fits, against rounding.
      const double fitting = (limit_ns * to_double(step_size) + accumulate_ns -
                              once_per_step_ns(segment, static_cast<int>(m), level)) /
                                 (compute_ns + accumulate_ns) +
                             1;
      if (!(fitting >= 1)) return 0;
      const int64_t next_share =
          std::min(share - 1, fitting < to_double(share) ? static_cast<int64_t>(fitting) : share);
      m = ceil_div(step_size, next_share);
    }
    return 0;
  }
};

}  // namespace

std::unique_ptr<CostModel> make_penstock_model(const cluster::Cluster& cluster, GradientSync sync,
                                               SyncOverlap overlap, FloatType precision) {
  return std::make_unique<Penstock>(cluster, sync, overlap, precision);
}

}  // namespace penstock::planner
