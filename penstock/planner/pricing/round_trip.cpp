#include "penstock/planner/pricing/round_trip.h"

#include <algorithm>

#include "penstock/plan/boundaries.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

namespace {

// The lowest level that joins a replica of one stage with one of a later stage.
int nearest_level(const cluster::Topology& topology, const plan::Plan& plan,
                  const std::vector<std::vector<int>>& workers, const plan::Link& link) {
  if (!workers.empty()) {
    // As many replicas of each stage; one talks to the one of the same number.
    int lowest = topology.num_levels();
    const std::vector<int>& from = workers[link.from.index()];
    const std::vector<int>& to = workers[link.to.index()];
    for (size_t r = 0; r < std::min(from.size(), to.size()); ++r)
      lowest = std::min(lowest, topology.level_between(from[r], to[r]));
    return lowest;
  }
  const plan::Stage& from = plan.stages[link.from.index()];
  const plan::Stage& to = plan.stages[link.to.index()];
  // Runs of workers: the nearest are the end of one and the beginning of the other.
  return from.first_worker < to.first_worker
             ? topology.level_between(from.first_worker + from.replicas - 1, to.first_worker)
             : topology.level_between(to.first_worker + to.replicas - 1, from.first_worker);
}

int64_t message_ns(const cluster::Path& path, int64_t bytes) {
  if (path.by_reference) return path.latency_ns;
  return saturating_add(path.latency_ns,
                        ceil_mul_div(bytes, 1'000'000'000, path.bandwidth_bytes_per_s));
}

}  // namespace

int64_t round_trip_ns(const cluster::Topology& topology, const plan::Plan& plan) {
  constexpr int64_t kNotReached = -1;
  const bool splits_backward = traits(plan.strategy).splits_backward;
  const std::vector<std::vector<int>> workers = plan::workers_by_stage(plan);
  std::vector<int64_t> there_and_back_ns(plan.stages.size(), kNotReached);
  there_and_back_ns.front() = 0;
  std::vector<std::vector<const plan::Link*>> into(plan.stages.size());
  for (const plan::Link& link : plan.links) into[link.to.index()].push_back(&link);
  int64_t longest_ns = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    int64_t& ns = there_and_back_ns[s];
    for (const plan::Link* link : into[s]) {
      const int64_t before_ns = there_and_back_ns[link->from.index()];
      if (before_ns == kNotReached) continue;
      const cluster::Path& path = topology.path(nearest_level(topology, plan, workers, *link));
      const plan::SentOver sent = plan::sent_over(*link, plan.precision);
      const int64_t both_ways_ns =
          saturating_add(message_ns(path, sent.bytes), message_ns(path, sent.bytes_back));
      ns = std::max(ns, saturating_add(before_ns, both_ways_ns));
    }
    if (ns == kNotReached) continue;
    const plan::Stage& stage = plan.stages[s];
    ns = saturating_add(
        ns, stage.compute_ns() - (splits_backward ? stage.backward_weight_ns : int64_t{0}));
    longest_ns = std::max(longest_ns, ns);
  }
  return longest_ns;
}

}  // namespace penstock::planner
