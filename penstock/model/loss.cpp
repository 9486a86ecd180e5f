#include "penstock/model/loss.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <fmt/format.h>

#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

std::string sizes_text(const at::Tensor& tensor) {
  return detail::shape_text(tensor.sizes().vec());
}

void check_arguments(const at::Tensor& logits, const at::Tensor& targets,
                     int64_t mini_batch_samples) {
  if (logits.dim() != 2 || logits.numel() == 0) {
    throw ConfigError(fmt::format(
        "cross-entropy: expected logits of shape [batch, classes], found {}", sizes_text(logits)));
  }
  if (targets.dim() != 1 || targets.size(0) != logits.size(0) ||
      targets.scalar_type() != at::kLong) {
    throw ConfigError(fmt::format("cross-entropy: expected {} int64 targets, found {} of shape {}",
                                  logits.size(0), c10::toString(targets.scalar_type()),
                                  sizes_text(targets)));
  }
  if (mini_batch_samples < 1) {
    throw ConfigError(
        fmt::format("cross-entropy: samples in the mini-batch must be at least 1, found {}",
                    mini_batch_samples));
  }
  const int64_t lowest = targets.min().item<int64_t>();
  const int64_t highest = targets.max().item<int64_t>();
  if (lowest < 0 || highest >= logits.size(1)) {
    throw ConfigError(
        fmt::format("cross-entropy: a target is {}, but there are {} classes (0 to {})",
                    lowest < 0 ? lowest : highest, logits.size(1), logits.size(1) - 1));
  }
}

}  // namespace

LossResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                         int64_t mini_batch_samples) {
  check_arguments(logits, targets, mini_batch_samples);
  const at::Tensor per_sample =
      at::nll_loss(at::log_softmax(logits, 1), targets, /*weight=*/{}, /*reduction: none=*/0);
  LossResult result;
  result.scaled_loss = per_sample.sum() / static_cast<double>(mini_batch_samples);
  result.loss_sum = per_sample.detach().sum(at::kDouble).item<double>();
  result.correct = logits.detach().argmax(1).eq(targets).sum().item<int64_t>();
  return result;
}

}  // namespace penstock::model
