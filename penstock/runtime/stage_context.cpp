#include "penstock/runtime/stage_context.h"

#include <algorithm>

#include "penstock/model/team.h"
#include "penstock/plan/compensation.h"
#include "penstock/runtime/moved_weights.h"

namespace penstock::runtime {

const model::Tensors& StageContext::weights(const schedule::Action& action) const {
  return moved != nullptr ? moved->forward(action) : replica.weights.at(action.version);
}

model::ForwardContext StageContext::forward_context(const schedule::Action& action,
                                                    model::MutableTensorSpan carried) const {
  return {.training = run.training,
          .seed = run.source().seed(action.micro_batch),
          .device = device().compute().memory(),
          .carried = carried,
          .team = team};
}

bool StageContext::reports_loss() const {
  return makes_output() && (team == nullptr || team->member() == 0);
}

model::Loss StageContext::loss() const {
  const std::optional<model::Division>& parts = run.pipeline.output_parts;
  if (!parts || team == nullptr) return run.loss;
  const bool is_own = !run.training && run.options().loss;  // of an evaluation
  if (!is_own && run.pipeline.team_loss) {
    return [this](const at::Tensor& part, const at::Tensor& targets,
                  const model::MiniBatchSize& mini_batch) {
      return run.pipeline.team_loss(part, targets, mini_batch, *team, *run.pipeline.output_parts);
    };
  }
  return [this](const at::Tensor& part, const at::Tensor& targets,
                const model::MiniBatchSize& mini_batch) {
    const at::Tensor whole = model::gather(part, *team, *run.pipeline.output_parts);
    // What an evaluation makes of the output may be collected: once.
    if (!run.training && team->member() > 0) return model::LossResult();
    return run.loss(whole, targets, mini_batch);
  };
}

void StageContext::meet_replicas() const {
  fabric.start_sum(stage(), replica.replica, 0, {});
  block([&](Wait& wait) {
    BucketSum none;
    return fabric.finish_sum(stage(), replica.replica, 0, none, wait);
  });
}

model::MiniBatchSize StageContext::size_of(const schedule::Action& action) const {
  const BatchSource& source = run.source();
  if (!run.training || !replica.round) return source.size_of(action.mini_batch);
  model::MiniBatchSize share{.samples = 0};
  const int64_t begin = action.mini_batch.value * shape().accumulate;
  const int64_t end = std::min(begin + shape().accumulate, shape().micro_batches);
  for (int64_t b = begin; b < end; ++b) {
    if (b % num_replicas() != replica.replica) continue;
    share.samples += source.samples(MicroBatchId{b});
    share.targets += source.micro_batch_targets(MicroBatchId{b});
  }
  return share;
}

double StageContext::loss_scale_of(MicroBatchId micro_batch) const {
  return loss_scale == nullptr ? 1 : loss_scale->at(run.loss_versions[micro_batch.index()]);
}

model::StepContext StageContext::step_context(int64_t step) const {
  const int64_t number = run.steps_before + step;
  // Steps that were left out have not moved the optimiser's averages.
  const int64_t skipped =
      loss_scale == nullptr ? run.loss_scale.skipped : loss_scale->state().skipped;
  const RunOptions& options = run.options();
  const double divisor = traits(shape().compensation).divides_rate
                             ? plan::rate_divisor(delay, number, options.fade_steps)
                             : 1;
  return {.learning_rate = options.learning_rate(number) / divisor,
          .step = std::max<int64_t>(number + 1 - skipped, 1),
          .mean_decay = plan::mean_step_decay(delay),
          .momentum = options.momentum ? options.momentum(number) : std::nullopt,
          .average_share = options.average_share ? options.average_share(number) : 1};
}

}  // namespace penstock::runtime
