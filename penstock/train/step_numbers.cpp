#include "penstock/train/step_numbers.h"

#include "penstock/runtime/pipeline.h"

namespace penstock::train {

std::optional<double> step_momentum(const TrainOptions& options, int64_t step,
                                    int64_t total_steps) {
  const LearningRateSpec& rates = options.learning_rate;
  if (traits(options.plan.compensation).fixes_momentum) return std::nullopt;
  if (momentum_parameter(options.optimizer) != nullptr) {
    const std::optional<double> scheduled = scheduled_momentum(rates, step, total_steps);
    if (scheduled) return scheduled;
  }
  const bool is_corrected =
      options.corrects_momentum || options.optimizer.kind != model::OptimizerKind::Sgd;
  if (is_corrected || step == 0) return std::nullopt;
  // u = v / rate, where v = momentum * v + rate * gradient.
  const double before = learning_rate(rates, step - 1, total_steps);
  const double now = learning_rate(rates, step, total_steps);
  if (before == now || now == 0) return std::nullopt;
  return options.optimizer.momentum * before / now;
}

model::OptimizerSpec optimizer_of(const TrainOptions& options) {
  model::OptimizerSpec spec = options.optimizer;
  spec.averages = options.mean.is_used();
  return spec;
}

WithMeans::WithMeans(runtime::Pipeline& pipeline, const TrainOptions& options)
    : pipeline_(pipeline), has_means_(options.mean.is_used() && pipeline.steps() > 0) {
  if (has_means_) pipeline_.exchange_averages();
  if (pipeline_.has_rounds()) pipeline_.show_rounds();
}

WithMeans::~WithMeans() {
  if (pipeline_.has_rounds()) pipeline_.hide_rounds();
  if (has_means_) pipeline_.exchange_averages();
}

}  // namespace penstock::train
