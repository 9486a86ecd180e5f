#include "penstock/planner/partition/partition_search.h"

#include <algorithm>
#include <utility>

namespace penstock::planner {

namespace {

double slowest_speed(const cluster::Cluster& cluster, const cluster::WorkerRange& place) {
  double speed = cluster.device_of(place.first).speed;
  for (int worker = place.first + 1; worker < place.end() && !cluster.groups.empty(); ++worker) {
    speed = std::min(speed, cluster.device_of(worker).speed);
  }
  return speed;
}

}  // namespace

bool single_layers(const PartitionProblem& problem) {
  return problem.straight && problem.workers > problem.states.num_layers();
}

std::vector<int> layer_counts(const CutStates& states) {
  std::vector<int> counts;
  counts.reserve(static_cast<size_t>(states.size()));
  for (int state = 0; state < states.size(); ++state) counts.push_back(states.count(state));
  return counts;
}

int widest_unit(const PartitionProblem& problem, const Units& units, int state, double limit_ns) {
  int kind = units.top();
  if (state == 0 || state == problem.states.full()) return kind;
  const int64_t bytes = problem.states.cut_bytes(state);
  while (kind > 0 && !(problem.cut_ns(bytes, units.level(kind)) <= limit_ns)) --kind;
  return kind;
}

double slowest_ns(const PartitionProblem& problem, const Partition& partition) {
  const cluster::Topology& topology = problem.model.topology();
  double slowest = 0;
  int begin = 0;
  for (size_t k = 0; k < partition.ends.size(); ++k) {
    const cluster::WorkerRange& place = partition.places[k];
    const SegmentCost cost =
        on_device(problem.states.segment(begin, partition.ends[k], partition.recompute[k]),
                  slowest_speed(problem.cluster, place));
    slowest = std::max(slowest, problem.model.stage_ns(cost, place.count, topology.level_of(place),
                                                       problem.memory.micro_batches));
    begin = partition.ends[k];
    if (k + 1 == partition.ends.size()) break;
    const int level = topology.level_between(place.first, partition.places[k + 1].end() - 1);
    slowest = std::max(slowest, problem.cut_ns(problem.states.cut_bytes(begin), level));
  }
  return slowest;
}

int64_t needed_bytes(const PartitionProblem& problem, const Partition& partition) {
  int64_t most = 0;
  int begin = 0;
  int workers_from_here = partition.num_workers();
  for (size_t k = 0; k < partition.ends.size(); ++k) {
    const StageMemory kept =
        stage_memory(problem.states, begin, partition.ends[k], partition.recompute[k]);
    most = std::max(most,
                    problem.memory.stage_bytes(kept, partition.places[k].count, workers_from_here));
    workers_from_here -= partition.places[k].count;
    begin = partition.ends[k];
  }
  return most;
}

void move_forward(const PartitionProblem& problem, const Units& units, Partition& partition) {
  const int spare = partition.places.front().first;
  for (int kind = 0; kind < units.top(); ++kind) {
    const int shift = spare - units.before(spare, kind);
    if (shift == 0) return;
    Partition moved = partition;
    for (cluster::WorkerRange& place : moved.places) place.first -= shift;
    moved.bottleneck_ns = slowest_ns(problem, moved);
    if (moved.bottleneck_ns <= partition.bottleneck_ns) {
      partition = std::move(moved);
      return;
    }
  }
}

}  // namespace penstock::planner
