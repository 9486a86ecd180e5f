#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/runtime/sums/bucket_path.h"
#include "penstock/runtime/sums/local_sums.h"
#include "penstock/runtime/sums/low_rank_sums.h"
#include "penstock/runtime/sums/replica_sums.h"
#include "penstock/runtime/sums/shared_weights.h"
#include "penstock/runtime/sums/stage_sums.h"
#include "penstock/runtime/sums/step_rule.h"

namespace penstock::runtime {

namespace {

/// By weight, whether the only replica of a stage rounds as several would.
std::vector<bool> rounded_weights(const StageContext& context) {
  const Run& run = context.run;
  const StageModule& module = context.module();
  std::vector<bool> weights;
  if (context.num_replicas() > 1 || run.pipeline.rounded_layers.empty() ||
      !is_short(run.setup.gradient_precision))
    return weights;
  for (size_t l = 0; l < module.layers().size(); ++l)
    weights.resize(module.weight_offsets()[l + 1],
                   run.pipeline.rounded_layers[module.layers()[l].index()]);
  return weights;
}

Grouping grouping_of(const StageContext& context) {
  const Run& run = context.run;
  const schedule::ScheduleShape& shape = context.shape();
  const int replicas = context.num_replicas();
  // Other policies do not promise equal bits: use the minimum number of groups.
  return {.groups = shape.policy == schedule::WeightPolicy::Flush ? run.gradient_groups : replicas,
          .accumulate = shape.accumulate,
          .micro_batches = run.request.endless != nullptr ? INT64_MAX : shape.micro_batches,
          .replica = context.replica.replica,
          .replicas = replicas,
          .gradient_precision = run.setup.gradient_precision,
          .rounded = rounded_weights(context)};
}

std::unique_ptr<StepRule> make_step_rule(const StageContext& context, BucketPath& path) {
  if (context.replica.shares_state) return std::make_unique<SharedSteps>(context, path);
  if (context.run.sums_updates()) return std::make_unique<UpdateSteps>(context, path);
  return std::make_unique<WholeSteps>(context, path);
}

}  // namespace

std::unique_ptr<StageSums> make_stage_sums(const StageContext& context) {
  Grouping grouping = grouping_of(context);
  if (grouping.replicas == 1 || !context.run.training)
    return std::make_unique<SoleSums>(context, std::move(grouping));
  if (GradientBoard* const board = context.run.boards[context.stage().index()].get())
    return std::make_unique<SharedSums>(context, grouping, *board);
  if (context.replica.low_rank) return std::make_unique<LowRankSums>(context, std::move(grouping));
  std::unique_ptr<BucketPath> path = make_bucket_path(context, grouping);
  if (context.replica.round)
    return std::make_unique<LocalSums>(context, std::move(grouping), std::move(path));
  std::unique_ptr<StepRule> rule = make_step_rule(context, *path);
  if (path->adds_in_background())
    return std::make_unique<BackgroundSums>(context, grouping, std::move(path), std::move(rule));
  return std::make_unique<ReplicaSums>(context, grouping, std::move(path), std::move(rule));
}

}  // namespace penstock::runtime
