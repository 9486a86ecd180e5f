#include "penstock/planner/machines/other_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "penstock/planner/planner.h"
#include "penstock/planner/teams/team_world.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

namespace {

using cluster::Cluster;
using profile::LayerCost;
using profile::Profile;

/// Micro-batches of a device whose passes are simulated one by one: more repeat them.
constexpr int64_t kMostPasses = 64;

class Ways {
 public:
  Ways(const Profile& profile, const Cluster& cluster, const PlanOptions& options,
       int64_t step_samples)
      : profile_(profile), cluster_(cluster), options_(options), workers_(cluster.num_workers()) {
    options_.compare = false;
    options_.strategy.reset();
    options_.straight = false;
    options_.memory_limit_bytes.reset();  // a plan that does not fit is priced all the same
    samples_ = profile::samples_per_micro_batch(profile);
    passes_ = std::max<int64_t>(1, ceil_div(step_samples, saturating_mul(samples_, workers_)));
    slowest_ = std::numeric_limits<double>::infinity();
    for (int w = 0; w < workers_; ++w) slowest_ = std::min(slowest_, cluster.device_of(w).speed);
    bandwidth_ = std::numeric_limits<int64_t>::max();
    for (const cluster::Level& level : cluster.levels) {
      if (level.count == 1) continue;
      bandwidth_ = std::min(bandwidth_, level.bandwidth_bytes_per_s);
      latency_ns_ = saturating_add(latency_ns_, level.latency_ns);
    }
    for (const LayerCost& cost : profile.costs) {
      gradients_ = saturating_add(gradients_, cost.weight_bytes);
      frozen_ = saturating_add(frozen_, cost.constant_bytes);
      step_ns_ = saturating_add(step_ns_, cost.step_ns);
    }
  }

  OtherWay ddp() const {
    OtherWay way{.name = "ddp"};
    const plan::Plan plan = price_plan(profile_, cluster_, {whole_stage(workers_)},
                                       options_with(plan::Strategy::DataParallel));
    way.compute_ns =
        on_slowest(saturating_add(saturating_mul(passes_, total_compute_ns(profile_)), step_ns_));
    way.bytes = ring(saturating_mul(gradients_, 2));
    way.wire_ns = saturating_add(wire(way.bytes), saturating_mul(latency_ns_, 2 * (workers_ - 1)));
    set_rates(way, saturating_mul(passes_, workers_));
    set_plan(way, plan);
    return way;
  }

  OtherWay fsdp() const {
    OtherWay way{.name = "fsdp"};
    way.compute_ns = on_slowest(
        saturating_add(saturating_mul(passes_, total_compute_ns(profile_)), step_ns_ / workers_));
    const int64_t moved =
        saturating_add(saturating_mul(saturating_add(gradients_, frozen_), 2), gradients_);
    way.bytes = saturating_mul(passes_, ring(moved));
    way.wire_ns = saturating_add(
        wire(way.bytes),
        saturating_mul(saturating_mul(passes_, 3 * gathering_layers()), latency_ns_));
    set_rates(way, saturating_mul(passes_, workers_));
    way.simulated_samples_per_s =
        per_second(saturating_mul(passes_, workers_), simulated_fsdp_ns());
    set_memory(way, fsdp_memory());
    way.note = "weights are gathered layer by layer, the next layer's while one computes";
    return way;
  }

  OtherWay tensor() const {
    OtherWay way{.name = "tensor"};
    const std::optional<TeamWorld> world = workers_ > 1 && can_be_shared_out(profile_)
                                               ? team_world(profile_, cluster_, workers_)
                                               : std::nullopt;
    if (!world) {
      way.possible = false;
      way.note = !can_be_shared_out(profile_) ? "no layer of the model is known to be divisible"
                                              : "machines or devices that differ are no team";
      return way;
    }
    const int64_t passes = saturating_mul(passes_, workers_);  // the team makes them all
    double compute_ns = 0;
    int64_t summed = 0;
    int64_t sums = 0;
    for (const LayerCost& cost : profile_.costs) {
      const double whole = 1 - cost.team.spread;
      const double part = whole + cost.team.spread * largest_part(cost.team, workers_);
      const double passes_ns =
          static_cast<double>(passes) *
          (static_cast<double>(cost.forward_ns) + static_cast<double>(cost.backward_ns));
      compute_ns += part * (passes_ns + static_cast<double>(cost.step_ns));
      summed =
          saturating_add(summed, saturating_add(cost.team.sum_bytes, cost.team.back_sum_bytes));
      sums = saturating_add(sums, saturating_add(cost.team.sums, cost.team.back_sums));
    }
    way.compute_ns = on_slowest(nearest(compute_ns));
    way.bytes = saturating_mul(passes, ring(saturating_mul(summed, 2)));
    way.wire_ns = saturating_add(
        wire(way.bytes),
        saturating_mul(saturating_mul(passes, saturating_mul(sums, 2)), latency_ns_));
    set_rates(way, passes);
    PlanOptions options = options_with(plan::Strategy::Serial);
    options.micro_batches = std::min<int64_t>(passes, kMaxMicroBatchesPerStep);
    set_plan(way, price_plan(world->profile, world->cluster, {whole_stage(1)}, options));
    way.high_samples_per_s = way.low_samples_per_s;
    way.note = "each sum is waited for";
    return way;
  }

 private:
  plan::Stage whole_stage(int replicas) const {
    plan::Stage stage;
    for (const graph::LayerNode& layer : profile_.graph.layers())
      stage.layers.push_back(layer.name);
    stage.replicas = replicas;
    return stage;
  }

  PlanOptions options_with(plan::Strategy strategy) const {
    PlanOptions options = options_;
    options.strategy = strategy;
    options.weights = plan::WeightPolicy::Flush;
    options.compensation = plan::Compensation::None;
    options.sync = plan::GradientSync::Ring;
    options.tensor = 1;
    options.mini_batch.reset();
    options.micro_batches =
        std::min<int64_t>(saturating_mul(passes_, workers_), kMaxMicroBatchesPerStep);
    return options;
  }

  int64_t on_slowest(int64_t ns) const { return nearest(static_cast<double>(ns) / slowest_); }
  /// What a device sends of so many bytes in a ring.
  int64_t ring(int64_t bytes) const {
    return nearest(static_cast<double>(bytes) * (workers_ - 1) / workers_);
  }
  int64_t wire(int64_t bytes) const {
    return nearest(1e9 * static_cast<double>(bytes) / static_cast<double>(bandwidth_));
  }

  /// When so many bytes have come that leave at `begin`.
  int64_t after(int64_t begin, int64_t bytes) const {
    return saturating_add(begin, saturating_add(wire(bytes), latency_ns_));
  }

  double per_second(int64_t passes, int64_t ns) const {
    const double samples = static_cast<double>(passes) * static_cast<double>(samples_);
    return ns > 0 ? 1e9 * samples / static_cast<double>(ns) : 0;
  }

  void set_rates(OtherWay& way, int64_t passes) const {
    way.low_samples_per_s = per_second(passes, saturating_add(way.compute_ns, way.wire_ns));
    way.high_samples_per_s = per_second(passes, std::max(way.compute_ns, way.wire_ns));
  }

  void set_memory(OtherWay& way, int64_t bytes) const {
    way.memory_bytes = bytes;
    for (int w = 0; w < workers_ && way.first_without_room < 0; ++w) {
      const int64_t limit = cluster_.device_of(w).memory_bytes;
      if (limit > 0 && bytes > limit) way.first_without_room = w;
    }
  }

  void set_plan(OtherWay& way, const plan::Plan& plan) const {
    way.simulated_samples_per_s = plan.prediction.throughput_samples_per_s;
    int64_t most = 0;
    for (const plan::Stage& stage : plan.stages) most = std::max(most, stage.memory_bytes);
    set_memory(way, most);
  }

  int64_t held(const LayerCost& cost) const {
    return saturating_add(cost.weight_bytes, cost.constant_bytes);
  }

  int64_t gathering_layers() const {
    return std::count_if(profile_.costs.begin(), profile_.costs.end(),
                         [&](const LayerCost& cost) { return held(cost) > 0; });
  }

  /// Shares of weights, gradients and state; two layers' whole weights; one micro-batch.
  int64_t fsdp_memory() const {
    int64_t largest = 0;
    int64_t stash = 0;
    int64_t working = 0;
    for (const LayerCost& cost : profile_.costs) {
      largest = std::max(largest, held(cost));
      stash = saturating_add(stash, cost.stash_bytes);
      working = std::max(working, cost.working_bytes);
    }
    const double kept = static_cast<double>(frozen_) +
                        static_cast<double>(gradients_) * (2 + options_.optimizer_state_per_weight);
    return saturating_add(nearest(kept / workers_), saturating_add(saturating_mul(largest, 2),
                                                                   saturating_add(stash, working)));
  }

  /// Two lanes: the wire gathers the weights of the next layer, or scatters gradients, while the
  /// device computes. A layer begins when its weights are there.
  int64_t simulated_fsdp_ns() const {
    int64_t wire_free = 0;
    int64_t device_free = 0;
    const auto pass = [&](const LayerCost& cost, int64_t compute_ns, int64_t begins,
                          int64_t scattered) {
      if (held(cost) > 0) {
        // Not before the one before has begun: two layers' weights are there at most.
        wire_free = after(std::max(wire_free, begins), ring(held(cost)));
        device_free = std::max(device_free, wire_free);
      }
      const int64_t begun = device_free;
      device_free = saturating_add(device_free, on_slowest(compute_ns));
      if (scattered > 0) wire_free = after(std::max(wire_free, device_free), ring(scattered));
      return begun;
    };
    const int64_t counted = std::min(passes_, kMostPasses);
    for (int64_t p = 0; p < counted; ++p) {
      int64_t begun = device_free;
      for (const LayerCost& cost : profile_.costs) begun = pass(cost, cost.forward_ns, begun, 0);
      for (auto cost = profile_.costs.rbegin(); cost != profile_.costs.rend(); ++cost) {
        if (cost->backward_ns == 0) continue;  // frozen, before what is trained
        begun = pass(*cost, cost->backward_ns, begun, cost->weight_bytes);
      }
    }
    const double passes_ns = static_cast<double>(std::max(wire_free, device_free)) *
                             static_cast<double>(passes_) / static_cast<double>(counted);
    return saturating_add(nearest(passes_ns), on_slowest(step_ns_ / workers_));
  }

  const Profile& profile_;
  const Cluster& cluster_;
  PlanOptions options_;
  int workers_;
  int64_t samples_ = 1;  ///< of a micro-batch
  int64_t passes_ = 1;   ///< micro-batches of a device in a step
  double slowest_ = 1;   ///< speed
  int64_t bandwidth_ = 1;
  int64_t latency_ns_ = 0;
  int64_t gradients_ = 0;
  int64_t frozen_ = 0;
  int64_t step_ns_ = 0;
};

}  // namespace

std::vector<OtherWay> other_ways(const Profile& profile, const Cluster& cluster,
                                 const PlanOptions& options, int64_t step_samples) {
  if (cluster.num_workers() < 2) return {};
  const Ways ways(profile, cluster, options, step_samples);
  return {ways.ddp(), ways.fsdp(), ways.tensor()};
}

}  // namespace penstock::planner
