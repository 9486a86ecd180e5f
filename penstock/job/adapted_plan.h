// A plan as a training run uses it: with the run's mini-batch, micro-batches and weight policy.
// Torch-free.
//
//   plan = adapted_plan(plan, {.mini_batch_size = 128});
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/plan/plan.h"

namespace penstock::job {

struct PlanUse {
  int64_t mini_batch_size = 1;                          ///< samples per optimiser step, at least 1
  std::optional<int64_t> micro_batches = {};            ///< per step; nothing: the plan's
  std::optional<plan::WeightPolicy> weights = {};       ///< nothing: the plan's
  std::optional<plan::Compensation> compensation = {};  ///< nothing: the plan's
  /// Links whose codings the plan takes; nothing: its own.
  std::optional<std::vector<plan::Link>> boundaries = {};
  bool shard_optimizer = false;  ///< of every stage with replicas; otherwise as the plan says
  /// Where the plan says so, replicas have their weights once (plan::Stage::shares_weights);
  /// otherwise none do: they are in several processes, or the optimiser needs whole weights.
  bool share_weights = true;
  bool sequence = false;  ///< of every stage with teams; otherwise as the plan says
};

/// The plan itself where nothing differs. A mini-batch has no more micro-batches than samples.
/// Where the micro-batch size differs, computing times, messages and stashes are scaled in
/// proportion. Throughput, idle share and memory are simulated anew for what differs; latency,
/// bytes per sample, alternatives and notes of the other run go. Throws ConfigError when the
/// plan's strategy cannot run like that, or with the compensation.
plan::Plan adapted_plan(const plan::Plan& plan, const PlanUse& use);

}  // namespace penstock::job
