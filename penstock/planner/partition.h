// What the partitioner is asked, and what it answers.
//
//   const auto best = best_partition({.states = states, .model = *model, .memory = memory,
//       .cluster = cluster, .workers = 16});
#pragma once

#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/cluster/topology.h"
#include "penstock/planner/cost/cost_model.h"
#include "penstock/planner/cost/memory_model.h"
#include "penstock/planner/cuts/cut_states.h"
#include "penstock/planner/memory_budget.h"
#include "penstock/planner/time_limit.h"

namespace penstock::planner {

struct Partition;

struct PartitionProblem {
  const CutStates& states;
  const CostModel& model;
  MemoryModel memory;
  Choice recompute = Choice::Never;
  const cluster::Cluster& cluster;
  int workers = 1;                   ///< the first that many of the cluster's workers may be used
  bool straight = false;             ///< one worker per stage, exactly min(workers, layers) stages
  bool at_least_two_stages = false;  ///< ignored with one worker or one layer
  /// No worker may idle (PipeDream's released optimiser); without effect on straight partitions.
  bool use_all_workers = false;
  /// A boundary's messages cost as if so many links shared them.
  int links_per_cut = 1;
  // These two only save time.
  double at_least_ns = 0;  ///< no partition has a smaller bottleneck
  /// Some partition is expected to have a bottleneck no larger; 0: not known.
  double expected_ns = 0;
  TimeLimit time = {};
  /// Where time ends before there is a partition, a little more is taken to find one.
  bool needs_partition = true;
  MemoryBudget* budget = nullptr;  ///< of what the search stores; null: none
  /// Gets what the search finds before it finds better, where it is not null.
  std::vector<Partition>* earlier = nullptr;

  /// As CostModel::cut_ns().
  double cut_ns(int64_t bytes, int level) const {
    return model.cut_ns(bytes, level) / links_per_cut;
  }
};

/// Stage k holds the layers of state ends[k] that are not in ends[k - 1]; the last end is the full
/// state. Its replicas are the workers of places[k].
struct Partition {
  std::vector<int> ends;
  /// Ascending and disjoint, in the order of the stages; workers between them idle.
  std::vector<cluster::WorkerRange> places;
  std::vector<bool> recompute;
  /// The slowest stage or cut, with the problem's micro-batches per step.
  double bottleneck_ns = 0;
  /// Where time ran out: another partition may be faster by so much, but not by more.
  double open_ns = 0;

  /// Adds the next stage.
  void append(int end, cluster::WorkerRange place, bool recomputes);

  int num_workers() const;
  std::vector<int> replicas() const;
  bool operator==(const Partition&) const = default;
};

}  // namespace penstock::planner
