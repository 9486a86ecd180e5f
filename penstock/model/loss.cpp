#include "penstock/model/loss.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/nll_loss2d.h>
#include <fmt/format.h>

#include <algorithm>

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

void check_mini_batch(const char* loss, int64_t samples) {
  if (samples >= 1) return;
  throw ConfigError(
      fmt::format("{}: samples in the mini-batch must be at least 1, found {}", loss, samples));
}

void check_pixels(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.dim() != 4 || logits.numel() == 0) {
    throw ConfigError(
        fmt::format("cross-entropy per pixel: expected logits of shape [batch, classes, height, "
                    "width], found {}",
                    sizes_text(logits)));
  }
  if (targets.dim() != 3 || targets.scalar_type() != at::kLong ||
      targets.size(0) != logits.size(0) || targets.size(1) != logits.size(2) ||
      targets.size(2) != logits.size(3)) {
    throw ConfigError(fmt::format(
        "cross-entropy per pixel: expected int64 targets of shape [{}, {}, {}], found {} of {}",
        logits.size(0), logits.size(2), logits.size(3), c10::toString(targets.scalar_type()),
        sizes_text(targets)));
  }
}

/// Of the pixels that have a target.
struct PixelCounts {
  int64_t targets = 0;
  int64_t correct = 0;  ///< whose largest logit, the first of equal ones, is the target's
  int64_t lowest = 0;
  int64_t highest = 0;
};

/// In one pass: libtorch's operations would be ten, each with a tensor of its own.
PixelCounts count_pixels(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor scores = logits.detach().to(at::kFloat).contiguous();
  const at::Tensor wanted = targets.contiguous();
  const int64_t classes = scores.size(1);
  const int64_t pixels = scores.size(2) * scores.size(3);
  PixelCounts counts;
  for (int64_t sample = 0; sample < scores.size(0); ++sample) {
    const float* const score = scores.data_ptr<float>() + sample * classes * pixels;
    const int64_t* const target = wanted.data_ptr<int64_t>() + sample * pixels;
    for (int64_t i = 0; i < pixels; ++i) {
      if (target[i] == kNoTarget) continue;
      ++counts.targets;
      counts.lowest = std::min(counts.lowest, target[i]);
      counts.highest = std::max(counts.highest, target[i]);
      int64_t best = 0;
      for (int64_t c = 1; c < classes; ++c) {
        if (score[c * pixels + i] > score[best * pixels + i]) best = c;
      }
      if (best == target[i]) ++counts.correct;
    }
  }
  return counts;
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

LossResult pixel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                               int64_t mini_batch_samples) {
  check_pixels(logits, targets);
  check_mini_batch("cross-entropy per pixel", mini_batch_samples);
  const PixelCounts counts = count_pixels(logits, targets);
  if (counts.highest >= logits.size(1) || counts.lowest < 0) {
    throw ConfigError(fmt::format(
        "cross-entropy per pixel: a target is {}, but there are {} classes (0 to {})",
        counts.lowest < 0 ? counts.lowest : counts.highest, logits.size(1), logits.size(1) - 1));
  }
  const at::Tensor sum = at::nll_loss2d(at::log_softmax(logits, 1), targets, /*weight=*/{},
                                        /*reduction: sum=*/2, kNoTarget);
  const auto pixels = static_cast<double>(std::max<int64_t>(counts.targets, 1));
  const auto samples = static_cast<double>(logits.size(0));
  LossResult result;
  result.scaled_loss = sum * (samples / pixels / static_cast<double>(mini_batch_samples));
  result.loss_sum = sum.detach().item<double>() * samples / pixels;
  result.correct = counts.correct;
  result.targets = counts.targets;
  return result;
}

LossResult mean_squared_error(const at::Tensor& output, const at::Tensor& targets,
                              int64_t mini_batch_samples) {
  if (output.sizes() != targets.sizes() || output.dim() < 1 || output.numel() == 0) {
    throw ConfigError(fmt::format("mean squared error: expected targets of shape {}, found {}",
                                  sizes_text(output), sizes_text(targets)));
  }
  check_mini_batch("mean squared error", mini_batch_samples);
  const auto samples = static_cast<double>(output.size(0));
  const at::Tensor mean = at::mse_loss(output, targets);
  LossResult result;
  result.scaled_loss = mean * (samples / static_cast<double>(mini_batch_samples));
  result.loss_sum = mean.detach().item<double>() * samples;
  return result;
}

}  // namespace penstock::model
