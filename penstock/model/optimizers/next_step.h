// Weights as they are expected to be some steps later, by what the optimiser's state says of its
// next step: the prediction behind plan::Compensation::Predict.
//
//   // As far as the state was made by 10 steps:
//   at::Tensor later = moved_ahead(adam, weight, state, {.learning_rate = 0.1, .step = 10}, 3);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "penstock/model/optimizer.h"
#include "penstock/model/says_next_step.h"

namespace penstock::model {

/// weight + steps * (the step that the optimiser makes out of its state, with the mean of past
/// gradients for the next one); a new tensor without a graph. `context`: the rate of the next step,
/// and the number of steps that made the state; before the first step (0) a copy of the weight.
///
///   sgd              -rate * momentum                               (SpecTrain, section 3.3)
///   adam             -rate * m' / (sqrt(v') + epsilon), bias corrected (XPipe, section 3.2)
///   adamw, nadamw    the same, and the weight's decay                  (PipeOptim, section 3)
///   nadam            as adam: gradient and average are both taken for m
///   rmsprop          -rate * momentum
///   lion             -rate * (sign(m) + decay * weight)
///
/// Differs from the papers: the decay of adamw is a part of the step. Throws InternalError unless
/// says_next_step().
at::Tensor moved_ahead(const Optimizer& optimizer, const at::Tensor& weight,
                       std::span<const at::Tensor> state, const StepContext& context,
                       int64_t steps);

}  // namespace penstock::model
