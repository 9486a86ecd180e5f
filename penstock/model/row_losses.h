// Cross-entropy over many classes in little memory: the gradient is made with the losses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::model {

struct RowLosses {
  at::Tensor losses;  ///< [targets]
  at::Tensor best;    ///< the first class of the largest logit, int64 [targets]
};

/// at::cross_entropy_loss() without reduction: of each row of `logits` [targets, classes], floating
/// point, at its class of `targets` [targets], int64 on the same device; 0 where that is `ignored`.
/// The forward pass saves the gradient of the logits, in their size. `overwrites`: in their memory,
/// where the backward pass scales it, so that the loss needs no other of that size; a second
/// backward pass throws c10::Error then.
RowLosses row_losses(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored,
                     double smoothing, bool overwrites);

/// Whether nobody but this tensor has its memory, which may be overwritten then.
bool is_alone(const at::Tensor& tensor);

}  // namespace penstock::model
