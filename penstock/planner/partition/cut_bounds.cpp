#include "penstock/planner/partition/cut_bounds.h"

#include <algorithm>
#include <cmath>

#include "penstock/planner/cuts/depth_graph.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

namespace {

constexpr double kRelativeRounding = 1e-12;

int64_t compute_of(const PartitionProblem& problem, int64_t compute_ns, int64_t forward_ns) {
  return problem.recompute == Choice::Always ? compute_ns + forward_ns : compute_ns;
}

// The lowest level at which `workers` consecutive workers can meet.
int level_for(const cluster::Topology& topology, int workers) {
  int level = 0;
  while (level < topology.num_levels() && topology.unit_size(level) < workers) ++level;
  return level;
}

}  // namespace

CutBounds::CutBounds(const PartitionProblem& problem, const std::vector<PlannedLayer>& layers)
    : problem_(problem), layers_(layers) {
  total_ = problem.states.sums(problem.states.full());
  speed_before_.assign(1, 0);
  bool all_one = true;
  for (int w = 0; w < problem.workers; ++w) {
    const double speed = problem.cluster.device_of(w).speed;
    speed_before_.push_back(speed_before_.back() + speed);
    fastest_ = std::max(fastest_, speed);
    all_one = all_one && speed == 1.0;
  }
  // Scaled to a device, a stage's computation is rounded to whole nanoseconds.
  if (!all_one) slack_ns_ = 1;
  const double shared_ns =
      static_cast<double>(compute_of(problem, total_.compute_ns, total_.forward_ns)) /
          speed_before_.back() * (1 - kRelativeRounding) -
      slack_ns_;
  least_bottleneck_ns_ = std::max(0.0, shared_ns);
  least_bottleneck_ns_ = std::max(least_bottleneck_ns_, slowest_layer_ns());
}

double CutBounds::slowest_layer_ns() const {
  double slowest_ns = least_bottleneck_ns_;
  const auto& topology = problem_.model.topology();
  for (const PlannedLayer& layer : layers_) {
    const int64_t compute_ns = compute_of(problem_, layer.compute_ns, layer.forward_ns);
    const SegmentCost segment = on_device({compute_ns, layer.step_ns, layer.weight_bytes,
                                           layer.accumulate_ns, layer.compute_ns + layer.step_ns},
                                          fastest_);
    double best_ns = problem_.model.stage_ns(segment, 1, 0, problem_.memory.micro_batches);
    for (int replicas = 2;
         replicas <= problem_.workers && !problem_.straight && best_ns > slowest_ns; ++replicas) {
      const int level = level_for(topology, replicas);
      best_ns = std::min(best_ns, problem_.model.stage_ns(segment, replicas, level,
                                                          problem_.memory.micro_batches));
    }
    slowest_ns = std::max(slowest_ns, best_ns * (1 - kRelativeRounding));
  }
  return slowest_ns;
}

// -1 when not even an empty cut keeps the time.
int64_t CutBounds::most_bytes_within(double limit_ns, int level) const {
  constexpr int64_t kMost = int64_t{1} << 62;  // no cut is larger (check_totals)
  if (problem_.cut_ns(0, level) > limit_ns) return -1;
  if (problem_.cut_ns(kMost, level) <= limit_ns) return kMost;
  int64_t fits = 0;
  int64_t fails = kMost;
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (problem_.cut_ns(middle, level) <= limit_ns ? fits : fails) = middle;
  }
  return fits;
}

double CutBounds::largest_unit(int level) const {
  const int unit = problem_.model.topology().unit_size(level);
  double largest = 0;
  for (int first = 0; first < problem_.workers; first += unit) {
    const int end = std::min(problem_.workers, first + unit);
    largest = std::max(largest, speed_before_[static_cast<size_t>(end)] -
                                    speed_before_[static_cast<size_t>(first)]);
  }
  return largest;
}

UsableCuts CutBounds::within(double limit_ns) const {
  UsableCuts usable;
  if (problem_.workers < 2) return usable;
  const auto& topology = problem_.model.topology();
  const double per_worker_ns = limit_ns * (1 + kRelativeRounding) + slack_ns_;
  for (int level = level_for(topology, problem_.workers); level >= level_for(topology, 2);
       --level) {
    const int64_t most_bytes = most_bytes_within(limit_ns, level);
    if (!usable.tiers_.empty() && most_bytes == usable.tiers_.back().most_bytes) continue;
    usable.tiers_.push_back(
        {.most_bytes = most_bytes,
         .unit = std::min(problem_.workers, topology.unit_size(level)),
         .unit_ns = per_worker_ns * largest_unit(level) * (1 + kRelativeRounding),
         .promising = {{0, total_.compute_ns}}});
  }
  const auto total_ns = static_cast<double>(total_.compute_ns);
  for (int m = 1; m < problem_.workers; ++m) {
    const double before = speed_before_[static_cast<size_t>(m)];
    usable.most_ns_.push_back(per_worker_ns * before);
    usable.least_ns_.push_back(total_ns * (1 - kRelativeRounding) -
                               per_worker_ns * (speed_before_.back() - before));
  }
  return usable;
}

int CutBounds::num_levels() const {
  const auto& topology = problem_.model.topology();
  return std::max(1, level_for(topology, problem_.workers) - level_for(topology, 2) + 1);
}

// At least, for a stage with that computation; more than there are workers when it cannot be.
int64_t CutBounds::replicas_for(double compute_ns, double limit_ns) const {
  const double workers = compute_ns / ((limit_ns + slack_ns_) * fastest_) * (1 - 1e-9);
  const int64_t none = int64_t{problem_.workers} + 1;
  if (!(workers <= problem_.workers)) return none;
  const auto replicas = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(workers)));
  return problem_.straight && replicas > 1 ? none : replicas;
}

// Of everything, on the best workers there are.
bool CutBounds::single_stage_within(double limit_ns) const {
  const int64_t compute_ns = compute_of(problem_, total_.compute_ns, total_.forward_ns);
  const SegmentCost segment = on_device({compute_ns, total_.step_ns, total_.weight_bytes,
                                         total_.accumulate_ns, total_.compute_ns + total_.step_ns},
                                        fastest_);
  const auto& topology = problem_.model.topology();
  for (int replicas = 1; replicas <= (problem_.straight ? 1 : problem_.workers); ++replicas) {
    const double ns = problem_.model.stage_ns(segment, replicas, level_for(topology, replicas),
                                              problem_.memory.micro_batches);
    if (ns * (1 - kRelativeRounding) <= limit_ns) return true;
  }
  return false;
}

bool CutBounds::narrow(UsableCuts& usable, double limit_ns, const DepthIntervals& cells,
                       const std::vector<std::vector<bool>>& occupied) const {
  DepthGraph depths(cells, total_.compute_ns, problem_.workers,
                    [&](double compute_ns) { return replicas_for(compute_ns, limit_ns); });
  if (single_stage_within(limit_ns)) depths.allow_single_stage();
  for (size_t t = usable.tiers_.size(); t-- > 1;)
    depths.join_within_units(occupied[t], usable.tiers_[t].unit);
  if (!depths.find_paths(usable.tiers_.empty() ? std::vector<bool>(cells.size(), false)
                                               : occupied[0]))
    return false;
  for (size_t t = 0; t < usable.tiers_.size(); ++t)
    usable.tiers_[t].promising = depths.promising(t == 0);
  return true;
}

bool CutBounds::layer_cannot_fit(const PlannedLayer& layer, int64_t limit) const {
  const LayerSums sums{.weight_bytes = layer.weight_bytes, .stash_bytes = layer.stash_bytes};
  const auto misfit = [&](bool recompute) {
    const StageMemory stage{.sums = sums, .recompute = recompute};
    return problem_.memory.fewest_replicas(stage, 0, 1, problem_.straight ? 1 : problem_.workers,
                                           limit) == 0;
  };
  return (problem_.recompute == Choice::Always || misfit(false)) &&
         (problem_.recompute == Choice::Never || misfit(true));
}

bool CutBounds::cannot_fit() const {
  int64_t largest = 0;
  int64_t together = 0;
  for (int w = 0; w < problem_.workers; ++w) {
    const int64_t limit = problem_.memory.limit_bytes > 0
                              ? problem_.memory.limit_bytes
                              : problem_.cluster.device_of(w).memory_bytes;
    if (limit == 0) return false;
    largest = std::max(largest, limit);
    together = saturating_add(together, limit);
  }
  // Every weight has its versions, gradient and optimiser state on some worker; with more replicas
  // than one perhaps a single set of gradients.
  const StageMemory weights{.sums = {.weight_bytes = total_.weight_bytes}};
  Held held = problem_.memory.held(1, 1);
  held.gradient_sets = 1;
  if (problem_.memory.stage_bytes(weights, held) - problem_.workers > together) return true;
  return std::any_of(layers_.begin(), layers_.end(),
                     [&](const PlannedLayer& layer) { return layer_cannot_fit(layer, largest); });
}

}  // namespace penstock::planner
