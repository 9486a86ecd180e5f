#include "penstock/runtime/stage_context.h"

#include <algorithm>

namespace penstock::runtime {

model::ForwardContext StageContext::forward_context(const schedule::Action& action) const {
  return {.training = run.training,
          .seed = run.source().seed(action.micro_batch),
          .device = device().compute().memory()};
}

double StageContext::loss_scale_of(MicroBatchId micro_batch) const {
  return loss_scale == nullptr ? 1 : loss_scale->at(run.loss_versions[micro_batch.index()]);
}

model::StepContext StageContext::step_context(int64_t step) const {
  const int64_t number = run.steps_before + step;
  // Steps that were left out have not moved the optimiser's averages.
  const int64_t skipped =
      loss_scale == nullptr ? run.loss_scale.skipped : loss_scale->state().skipped;
  return {.learning_rate = run.options().learning_rate(number),
          .step = std::max<int64_t>(number + 1 - skipped, 1)};
}

}  // namespace penstock::runtime
