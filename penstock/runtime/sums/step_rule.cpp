#include "penstock/runtime/sums/step_rule.h"

#include "penstock/runtime/fabric/delayed_sum.h"

namespace penstock::runtime {

bool WholeSteps::step(const model::StepContext& step, const Tensors* ready) {
  if (ready == nullptr) {
    weights_.begin_step(step);
    return true;
  }
  weights_.step(*ready, step);
  return false;
}

void WholeSteps::take(size_t bucket) {
  weights_.step_weights(path_.first_weight(bucket), path_.finish(bucket));
}

bool SharedSteps::step(const model::StepContext& step, const Tensors* ready) {
  weights_.begin_step(step);
  for (size_t bucket = 0; bucket < path_.num_buckets(); ++bucket) {
    const size_t first = path_.first_weight(bucket);
    if (ready == nullptr)
      weights_.step_weights(first, path_.finish(bucket));
    else
      weights_.step_weights(first, TensorSpan(*ready).subspan(first, path_.num_weights(bucket)));
    path_.start_gather(bucket);
  }
  return true;
}

Partials UpdateSteps::given(const schedule::SumEvent& sum, Partials partials) {
  const auto bucket = static_cast<size_t>(sum.bucket);
  const size_t first = path_.first_weight(bucket);
  const Tensors gradients = sum_of(std::move(partials), path_.num_weights(bucket));
  return {
      {.group = 0,
       .sums = weights_.updates(first, gradients, context_.step_context(sum.mini_batch.value))}};
}

bool UpdateSteps::step(const model::StepContext& step, const Tensors* ready) {
  weights_.begin_step(step);
  if (ready == nullptr) return true;
  weights_.add_weights(0, *ready);
  return false;
}

void UpdateSteps::take(size_t bucket) {
  weights_.add_weights(path_.first_weight(bucket), path_.finish(bucket));
}

void UpdateSteps::catch_up() {
  for (size_t bucket = 0; bucket < path_.num_buckets(); ++bucket) {
    context_.fabric.start_sum(context_.stage(), context_.replica.replica, bucket,
                              {{kLastUpdate, Tensors(path_.num_weights(bucket))}});
  }
  for (size_t bucket = 0; bucket < path_.num_buckets(); ++bucket)
    weights_.add_in_place(path_.first_weight(bucket), path_.finish(bucket));
}

}  // namespace penstock::runtime
