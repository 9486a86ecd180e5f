#include "penstock/schedule/plan_shape.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "penstock/cluster/topology.h"
#include "penstock/plan/boundaries.h"
#include "penstock/schedule/teams.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {
namespace {

/// Teams of more members than a schedule may have are refused later, by with_teams().
int clamped_place(int64_t place) { return static_cast<int>(std::min<int64_t>(place, INT32_MAX)); }

/// Where workers hold several stages: by worker, that of the cluster (of a team: of its first
/// member).
std::vector<int> places_of_shared(const plan::Plan& plan, int num_workers) {
  std::vector<int> sizes(static_cast<size_t>(num_workers), 1);
  size_t next = 0;
  for (const plan::Stage& stage : plan.stages) {
    for (int r = 0; r < stage.replicas; ++r, ++next) {
      const auto worker = static_cast<size_t>(plan.worker_of_replica.at(next));
      if (worker < sizes.size()) sizes[worker] = stage.tensor;
    }
  }
  std::vector<int> places;
  int64_t place = 0;
  for (const int size : sizes) {
    places.push_back(clamped_place(place));
    place += size;
  }
  return places;
}

/// The cluster's worker of each worker of the schedule of whole stages; stages without a place come
/// one after the other.
std::vector<int> places_of(const plan::Plan& plan, int num_workers) {
  if (!plan.worker_of_replica.empty()) return places_of_shared(plan, num_workers);
  std::vector<int> places;
  int64_t next = 0;
  for (const plan::Stage& stage : plan.stages) {
    if (stage.first_worker >= 0) next = stage.first_worker;
    for (int r = 0; r < stage.replicas; ++r, next += stage.tensor)
      places.push_back(clamped_place(next));
  }
  return places;
}

/// The cluster's worker of the first replica of each stage; -1: the plan does not say.
std::vector<int> first_workers(const plan::Plan& plan, const std::vector<int>& places) {
  const auto place_of = [&](size_t replica) {
    if (plan.worker_of_replica.empty()) return replica < places.size() ? places[replica] : -1;
    if (replica >= plan.worker_of_replica.size()) return -1;
    const auto worker = static_cast<size_t>(plan.worker_of_replica[replica]);
    return worker < places.size() ? places[worker] : -1;
  };
  std::vector<int> workers;
  size_t next = 0;
  for (const plan::Stage& stage : plan.stages) {
    workers.push_back(place_of(next));
    next += static_cast<size_t>(stage.replicas);
  }
  return workers;
}

/// What a message from a stage to the next takes, between their first replicas.
struct MessageTime {
  int64_t whole = 0;
  std::vector<int64_t> busy = {};  ///< per level that joins something
};

MessageTime message_of(const plan::Plan& plan, const cluster::Topology& topology,
                       const std::vector<int>& first_workers, size_t stage) {
  int64_t bytes = 0;
  for (const plan::Link& link : plan.links) {
    if (link.from.index() == stage && link.to.index() == stage + 1)
      bytes = saturating_add(bytes, plan::sent_over(link, plan.precision).bytes);
  }
  const int from = first_workers[stage];
  const int to = first_workers[stage + 1];
  const bool placed = std::min(from, to) >= 0 && std::max(from, to) < topology.num_workers();
  const int highest = placed ? topology.level_between(from, to) : topology.num_levels();
  const cluster::Path& path = topology.path(highest);
  MessageTime time{.whole = path.latency_ns};
  if (path.by_reference || bytes == 0) return time;
  int64_t slowest = 0;
  for (int level = 1; level <= topology.num_levels(); ++level) {
    const cluster::Level& joining = plan.cluster.levels[static_cast<size_t>(level - 1)];
    if (joining.count == 1) continue;
    const int64_t busy =
        level > highest ? 0 : ceil_mul_div(bytes, 1'000'000'000, joining.bandwidth_bytes_per_s);
    slowest = std::max(slowest, busy);
    time.busy.push_back(busy);
  }
  time.whole = saturating_add(time.whole, slowest);
  return time;
}

/// Sums that leave bucket by bucket go on beside the computation.
int64_t waiting_for_sums(const plan::Stage& stage) {
  return stage.buckets.empty() ? stage.sync_ns : 0;
}

std::vector<StepCosts> step_costs(const plan::Plan& plan, const cluster::Topology& topology,
                                  const std::vector<int>& places) {
  const std::vector<int> workers = first_workers(plan, places);
  std::vector<StepCosts> costs;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::Stage& stage = plan.stages[s];
    MessageTime message;
    if (s + 1 < plan.stages.size()) message = message_of(plan, topology, workers, s);
    costs.push_back({.forward = stage.forward_ns,
                     .input = saturating_add(stage.backward_ns - stage.backward_weight_ns,
                                             stage.recompute ? stage.forward_ns : 0),
                     .again = stage.recompute ? stage.forward_ns : 0,
                     .weight = saturating_add(stage.backward_weight_ns, stage.accumulate_ns),
                     .message = message.whole,
                     .busy = std::move(message.busy),
                     .finish = saturating_add(waiting_for_sums(stage), stage.step_ns)});
  }
  return costs;
}

/// ScheduleShape::link_units, numbered by the units that are used.
std::vector<std::vector<int32_t>> link_units(const plan::Plan& plan,
                                             const cluster::Topology& topology,
                                             const std::vector<int>& places) {
  std::vector<std::vector<int32_t>> levels;
  for (int level = 1; level <= topology.num_levels(); ++level) {
    if (plan.cluster.levels[static_cast<size_t>(level - 1)].count == 1) continue;
    std::map<int, int32_t> numbers;
    std::vector<int32_t>& units = levels.emplace_back();
    for (const int place : places) {
      const int unit = place / topology.unit_size(level - 1);
      units.push_back(
          numbers.try_emplace(unit, static_cast<int32_t>(numbers.size())).first->second);
    }
  }
  return levels;
}

}  // namespace

ScheduleShape shape_of(const plan::Plan& plan, int64_t mini_batches) {
  ScheduleShape shape{.replicas = plan.replicas(),
                      .micro_batches = saturating_mul(mini_batches, plan.micro_batches),
                      .accumulate = plan.micro_batches,
                      .policy = plan.weights,
                      .compensation = plan.compensation,
                      .worker_of_replica = plan.worker_of_replica,
                      .slack = plan.slack};
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].recompute) {
      shape.recompute.resize(plan.stages.size());
      shape.recompute[s] = true;
    }
    if (plan.stages[s].offload) {
      shape.offload.resize(plan.stages.size());
      shape.offload[s] = true;
    }
  }
  if (traits(plan.strategy).takes_keep) {
    for (const plan::Stage& stage : plan.stages) shape.keep.push_back(stage.keep);
    const cluster::Topology topology(plan.cluster);
    const std::vector<int> places = places_of(plan, shape.num_workers());
    shape.costs = step_costs(plan, topology, places);
    shape.link_units = link_units(plan, topology, places);
    shape.repeats = true;
  }
  return shape;
}

ScheduleShape member_shape_of(const plan::Plan& plan, int64_t mini_batches) {
  return with_teams(shape_of(plan, mini_batches), plan.teams());
}

std::vector<StageLink> links_of(const plan::Plan& plan) {
  std::vector<StageLink> links;
  links.reserve(plan.links.size());
  for (const plan::Link& link : plan.links) links.push_back({link.from, link.to});
  return links_of_members(links, plan.teams());
}

}  // namespace penstock::schedule
