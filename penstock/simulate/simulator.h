// Runs a schedule against costs in simulated time and returns its timeline: the prediction that a measured run is compared with.
//
//   Costs costs = costs_of(plan);
//   Result result = simulate(schedule, costs);
//   double samples_per_s = result.throughput_samples_per_s(costs.samples_per_micro_batch);
//
// Model: each worker runs its list in order. A message leaves when its send starts and a credit is free, occupies its channel for bytes /
// bandwidth (messages of one channel follow each other), and arrives latency later; the sender goes on at once, the receiver waits for the
// arrival. SYNC starts when the last replica is there. docs/simulator.md lists the assumptions and the measured error.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"

namespace penstock::simulate {

struct StageCost {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;
  int64_t step_ns = 0;
  int64_t sync_ns = 0;
  int64_t stash_bytes = 0;
  int64_t weight_bytes = 0;
};

struct LinkCost {
  StageId from;
  StageId to;
  int64_t bytes = 0;
};

struct Costs {
  std::vector<StageCost> stages;      ///< per micro-batch
  std::vector<LinkCost> links;        ///< missing pairs cost nothing but latency
  int64_t bandwidth_bytes_per_s = 0;  ///< 0: by reference, messages cost latency only
  int64_t latency_ns = 0;
  int64_t samples_per_micro_batch = 1;
  int64_t credits = 1'000'000;              ///< messages per channel before a send waits
  double optimizer_state_per_weight = 1.0;  ///< bytes of optimiser state per weight byte (SGD with momentum 1, Adam 2)
};

Costs costs_of(const plan::Plan& plan);

struct Result {
  schedule::Timeline timeline;
  int64_t makespan_ns = 0;
  double idle_share = 0;
  std::vector<int64_t> peak_memory_bytes;  ///< per worker: weight versions, gradients, optimiser state, stashed activations
  int64_t micro_batches = 0;
  double throughput_samples_per_s = 0;  ///< whole schedule, fill and drain included
};

/// Throws ConfigError when `schedule` is not lowered or costs do not match its stages, and when the schedule deadlocks (verify it first).
/// O(actions * log workers). Pure. Times saturate instead of overflowing.
Result simulate(const schedule::Schedule& schedule, const Costs& costs);

}  // namespace penstock::simulate
