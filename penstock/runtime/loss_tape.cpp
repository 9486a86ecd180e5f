#include "penstock/runtime/loss_tape.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "penstock/model/row_losses.h"

namespace penstock::runtime {

model::LossResult LossTape::forward(const model::Loss& loss, at::Tensor output, bool needs_gradient,
                                    const at::Tensor& targets,
                                    const model::MiniBatchSize& mini_batch, double scale) {
  const at::AutoGradMode with_graph(true);
  model::MiniBatchSize size = mini_batch;
  size.output_is_free = model::is_alone(output);
  const at::Tensor entered = tape_.enter(output, needs_gradient);
  output.reset();
  model::LossResult result = loss(entered, targets, size);
  tape_.leave({&result.scaled_loss, 1});
  gradient_ = at::full_like(result.scaled_loss.detach(), scale);
  result.scaled_loss.reset();
  return result;
}

at::Tensor LossTape::backward() {
  const at::NoGradGuard no_grad;
  return std::move(tape_.backward({std::exchange(gradient_, {})}).inputs.front());
}

}  // namespace penstock::runtime
