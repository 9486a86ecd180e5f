#include "penstock/train/pipeline_options.h"

#include <cstdint>
#include <vector>

#include "penstock/model/team_loss.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/runtime/coding/subspace.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::train {

namespace {

/// Of the workers; what the plan predicts for each.
std::vector<int64_t> planned_memory(const PlannedModel& model, const plan::Plan& plan) {
  const schedule::WorkerTable table({.replicas = model.replicas(),
                                     .micro_batches = 0,
                                     .worker_of_replica = model.worker_of_replica()});
  std::vector<int64_t> of_stages;
  for (const plan::Stage& stage : plan.stages) of_stages.push_back(stage.memory_bytes);
  of_stages = model.per_stage(of_stages);
  std::vector<int64_t> bytes(static_cast<size_t>(table.num_workers()), 0);
  for (size_t s = 0; s < of_stages.size(); ++s) {
    const StageId stage{static_cast<int32_t>(s)};
    for (int r = 0; r < table.replicas(stage); ++r) {
      const WorkerId worker = table.worker_of_replica(stage, r);
      bytes[worker.index()] = saturating_add(bytes[worker.index()], of_stages[s]);
    }
  }
  return bytes;
}

/// Also makes what their codings need, before the run begins.
std::vector<runtime::CodedBoundary> coded_boundaries(const plan::Plan& plan) {
  std::vector<runtime::CodedBoundary> boundaries;
  for (const plan::Link& link : plan.links) {
    if (link.coding.is_exact()) continue;
    boundaries.push_back({link.from, link.to, link.coding});
    if (traits(link.coding.kind).takes_rank && link.width > link.coding.rank)
      runtime::prepare_subspace(link.width, link.coding.rank);
  }
  return boundaries;
}

}  // namespace

runtime::PipelineOptions pipeline_options(const PlannedModel& model, const TrainOptions& options,
                                          const model::ParameterOptimizers& optimizers) {
  return {.seed = options.seed,
          .threads_per_worker = options.threads_per_worker,
          .deadline = options.deadline,
          .worker_of_replica = model.worker_of_replica(),
          .gradient_groups = options.gradient_groups,
          .sync = options.plan.sync,
          .sync_every = options.plan.sync_every,
          .outer = options.outer,
          .sync_rank = options.plan.sync_rank,
          .gradient_precision = options.plan.gradient_precision,
          .precision = options.plan.precision,
          .rounded_layers = model.per_layer(options.rounded_layers),
          .boundaries = coded_boundaries(options.plan),
          .shard_optimizer = model.per_stage(plan::sharded_stages(options.plan)),
          .flushes = options.plan.weights == plan::WeightPolicy::Flush,
          .staleness = options.staleness,
          .loss = model::make_loss(model::loss_for(model.whole(), options.loss)),
          .loss_takes_output = true,
          .output_parts = model.output_parts(),
          .team_loss = model::make_team_loss(model::loss_for(model.whole(), options.loss)),
          .optimizers = &optimizers,
          .world = options.world,
          .device_of_worker = {options.device_of_worker.begin(), options.device_of_worker.end()},
          .device_graphs = options.device_graphs,
          .planned_memory_bytes = planned_memory(model, options.plan)};
}

}  // namespace penstock::train
