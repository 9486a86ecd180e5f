#include "penstock/planner/pricing/estimate.h"

#include <algorithm>

#include "penstock/plan/keep.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::planner {

using plan::Plan;
using plan::StrategyTraits;

namespace {

// Copies of a pipeline whose workers hold several stages each.
struct Copies {
  int64_t count = 1;
  int64_t replicas = 1;       ///< of each stage, in all copies
  int64_t workers = 1;        ///< of one copy
  int64_t chunks = 1;         ///< stages of one worker
  int64_t micro_batches = 1;  ///< of one copy and step, at most

  explicit Copies(const Plan& plan) {
    replicas = plan.stages.front().replicas;
    count = std::max<int64_t>(replicas / traits(plan.strategy).replicas_per_copy(), 1);
    workers = std::max<int64_t>(plan.num_workers() / count, 1);
    chunks = std::max<int64_t>(
        static_cast<int64_t>(plan.worker_of_replica.size()) / std::max(plan.num_workers(), 1), 1);
    micro_batches = ceil_div(plan.micro_batches, count);
  }
};

// Time per micro-batch, from the slowest part and the number of stages.
double estimated_ns(const Plan& plan) {
  const StrategyTraits& row = traits(plan.strategy);
  const auto slowest_ns = static_cast<double>(plan.prediction.bottleneck_ns);
  const auto stages = static_cast<double>(plan.stages.size());
  if (row.is_sequential()) {
    double all_ns = 0;
    for (const plan::Stage& stage : plan.stages) all_ns += static_cast<double>(stage.compute_ns());
    // The others run their forward pass again while the stages behind them work.
    all_ns += static_cast<double>(plan.stages.back().work_ns() - plan.stages.back().compute_ns());
    return std::max(all_ns, slowest_ns);
  }
  if (!row.flushes() || stages == 1) return slowest_ns;
  // Filling and draining take as long as one micro-batch for each further stage, once per step.
  // With several stages per worker, as long as one of them for each further worker, in all copies
  // at once.
  double filling = stages - 1;
  if (row.is_chunked()) {
    const Copies copies(plan);
    filling = static_cast<double>((copies.workers - 1) * copies.count) /
              static_cast<double>(copies.chunks);
  }
  return slowest_ns * (1 + filling / static_cast<double>(plan.micro_batches));
}

// A flushed step is over when all of it is done; without flushes a micro-batch passes every stage
// while the others do as much.
double estimated_latency_ns(const Plan& plan, double micro_batch_ns) {
  const int64_t waits_for =
      traits(plan.strategy).flushes()
          ? plan.micro_batches
          : std::max(plan.micro_batches, 2 * static_cast<int64_t>(plan.stages.size()) - 1);
  return micro_batch_ns * static_cast<double>(waits_for);
}

// Of one worker that holds these stages.
int64_t worker_bytes(const MemoryModel& model, const Copies& copies, const Plan& plan,
                     const std::vector<StageMemory>& memories, const std::vector<size_t>& stages) {
  const StrategyTraits& row = traits(model.strategy);
  const bool splits_backward = row.splits_backward;
  const int64_t share = ceil_div(copies.micro_batches, row.replicas_per_copy());
  int64_t bytes = 0;
  int64_t largest = 0;  // of what is kept of one micro-batch
  int64_t all = 0;      // everything that a step keeps
  int64_t remade = 0;   // what R makes, where it does not wait for W
  int64_t keep = 0;     // plan::Stage::keep of all its stages
  int64_t working = 0;  // of the pass that needs most
  for (const size_t s : stages) {
    const StageMemory& memory = memories[s];
    keep = plan::stricter_keep(keep, plan.stages[s].keep);
    bytes = saturating_add(
        bytes, model.fixed_bytes(
                   memory, {.gradient_sets = model.gradient_sets(static_cast<int>(copies.replicas)),
                            .state_parts = plan.stages[s].kept_state_parts()}));
    working = std::max(working, memory.working_bytes);
    bytes = saturating_add(bytes, plan.stages[s].waiting_bytes);
    int64_t kept = memory.sums.stash_bytes;
    if (memory.recompute && splits_backward) kept = saturating_add(kept, memory.input_bytes);
    if (memory.recompute && !splits_backward) {
      remade = std::max(remade, kept);
      kept = memory.input_bytes;
    }
    largest = std::max(largest, kept);
    all = saturating_add(all, saturating_mul(share, kept));
  }
  const int64_t most_kept = row.most_kept({.workers = copies.workers,
                                           .rank = static_cast<int64_t>(stages.front()),
                                           .chunks = copies.chunks,
                                           .micro_batches = copies.micro_batches,
                                           .keep = keep});
  const int64_t in_flight = saturating_mul(most_kept, largest);
  return saturating_add(saturating_add(bytes, working),
                        saturating_add(std::min(in_flight, all), remade));
}

void estimate_shared_memory(const MemoryModel& model, const std::vector<StageMemory>& memories,
                            Plan& plan) {
  const std::vector<std::vector<int>> worker_of_replica = plan::workers_by_stage(plan);
  std::vector<std::vector<size_t>> held(static_cast<size_t>(plan.num_workers()));
  for (size_t s = 0; s < worker_of_replica.size(); ++s) {
    for (const int worker : worker_of_replica[s]) held[static_cast<size_t>(worker)].push_back(s);
  }
  const Copies copies(plan);
  for (const std::vector<size_t>& stages : held) {
    const int64_t bytes = worker_bytes(model, copies, plan, memories, stages);
    for (const size_t s : stages)
      plan.stages[s].memory_bytes = std::max(plan.stages[s].memory_bytes, bytes);
  }
}

void estimate_own_memory(MemoryModel model, const std::vector<StageMemory>& memories, Plan& plan) {
  int workers_from_here = plan.num_workers();
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    plan::Stage& stage = plan.stages[s];
    model.shard_optimizer = stage.kept_state_parts() > 1;
    model.offload = stage.offload;
    model.keep = stage.keep;
    stage.memory_bytes = saturating_add(
        model.stage_bytes(memories[s], stage.replicas, workers_from_here), stage.waiting_bytes);
    workers_from_here -= stage.replicas;
  }
}

}  // namespace

void estimate_memory(const Context& context, const Split& split,
                     const std::vector<StageMemory>& memories, Plan& plan) {
  MemoryModel model = memory_model(context, split.strategy, split.policy, plan.micro_batches,
                                   split.slack, gradient_groups(context, split));
  model.frees_gradients = false;  // these are bounds, not the least
  for (plan::Stage& stage : plan.stages) stage.memory_bytes = 0;
  if (plan.shares_workers()) {
    estimate_shared_memory(model, memories, plan);
  } else {
    estimate_own_memory(model, memories, plan);
  }
}

void estimate(const Context& context, const Split& split, const std::vector<StageMemory>& memories,
              Plan& plan) {
  const double micro_batch_ns = std::max(estimated_ns(plan), 1.0);
  plan.prediction.throughput_samples_per_s =
      static_cast<double>(plan.micro_batch_size) * 1e9 / micro_batch_ns;
  plan.prediction.latency_ns = nearest(estimated_latency_ns(plan, micro_batch_ns));
  estimate_memory(context, split, memories, plan);
  double busy_ns = 0;
  for (const plan::Stage& stage : plan.stages) busy_ns += static_cast<double>(stage.work_ns());
  plan.prediction.idle_share =
      std::clamp(1 - busy_ns / (micro_batch_ns * plan.num_workers()), 0.0, 1.0);
  plan.explanation.notes.push_back(
      "This plan is too large to be simulated: its throughput is estimated from its slowest part "
      "and its number of stages.");
}

}  // namespace penstock::planner
