#include "penstock/model/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nll_loss2d.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "penstock/model/row_losses.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

constexpr int kReductionSum = 2;

std::string sizes_text(const at::Tensor& tensor) {
  return detail::shape_text(tensor.sizes().vec());
}

std::string found_text(const at::Tensor& targets) {
  return targets.defined() ? fmt::format("{} of shape {}", c10::toString(targets.scalar_type()),
                                         sizes_text(targets))
                           : std::string("none");
}

void check_mini_batch(const char* loss, int64_t samples) {
  if (samples >= 1) return;
  throw ConfigError(
      fmt::format("{}: samples in the mini-batch must be at least 1, found {}", loss, samples));
}

/// The mini-batch's targets; at least 1, so that nothing is divided by 0.
double targets_of(const MiniBatchSize& mini_batch, int64_t here) {
  return static_cast<double>(
      std::max<int64_t>(1, mini_batch.targets > 0 ? mini_batch.targets : here));
}

/// Fills in loss_sum, the sum times `factor`, and `correct`, if it is defined.
void set_numbers(LossResult& result, const at::Tensor& sum, double factor,
                 const at::Tensor& correct) {
  if (sum.device().is_cpu()) {
    result.loss_sum = sum.item<double>() * factor;
    if (correct.defined()) result.correct = correct.item<int64_t>();
    return;
  }
  const at::Tensor loss_sum = sum.to(at::kDouble).mul(factor);
  result.unread =
      at::stack({loss_sum, correct.defined() ? correct.to(at::kDouble) : at::zeros_like(loss_sum)});
}

/// The targets beside an output; staged memory of the host does not make this wait for a GPU.
at::Tensor beside(const at::Tensor& output, const at::Tensor& targets) {
  return targets.to(output.device(), /*non_blocking=*/true);
}

/// Fills the result in for a sum over this micro-batch's targets.
void set_loss(LossResult& result, const at::Tensor& sum, const at::Tensor& detached_sum,
              const MiniBatchSize& mini_batch, const at::Tensor& correct) {
  const double targets = targets_of(mini_batch, result.targets);
  result.scaled_loss = sum / targets;
  set_numbers(result, detached_sum, static_cast<double>(mini_batch.samples) / targets, correct);
}

/// The dimension of the classes; 0: the shapes do not fit.
int64_t class_dimension(const at::Tensor& logits, const at::Tensor& targets) {
  const auto fits = [&](int64_t dimension) {
    if (logits.dim() < 2 || targets.dim() != logits.dim() - 1) return false;
    for (int64_t d = 0, t = 0; d < logits.dim(); ++d) {
      if (d != dimension && logits.size(d) != targets.size(t++)) return false;
    }
    return true;
  };
  const int64_t last = logits.dim() - 1;
  const std::pair<int64_t, int64_t> order =
      logits.dim() == 3 ? std::pair(last, int64_t{1}) : std::pair(int64_t{1}, last);
  return fits(order.first) ? order.first : fits(order.second) ? order.second : 0;
}

int64_t checked_class_dimension(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.dim() < 2 || logits.numel() == 0) {
    throw ConfigError(fmt::format(
        "cross-entropy: expected logits of shape [batch, classes], [batch, places, classes] or "
        "[batch, classes, height, width], found {}",
        sizes_text(logits)));
  }
  const int64_t dimension = targets.defined() && targets.scalar_type() == at::kLong
                                ? class_dimension(logits, targets)
                                : 0;
  if (dimension > 0) return dimension;
  if (logits.dim() == 2) {
    throw ConfigError(fmt::format("cross-entropy: expected {} int64 targets, found {}",
                                  logits.size(0), found_text(targets)));
  }
  Shape expected = logits.sizes().vec();
  expected.erase(expected.begin() + (logits.dim() == 3 ? 2 : 1));
  throw ConfigError(
      fmt::format("cross-entropy: expected int64 targets of shape {} for logits of {}, found {}",
                  detail::shape_text(expected), sizes_text(logits), found_text(targets)));
}

struct TargetCounts {
  int64_t targets = 0;
  int64_t lowest = 0;
  int64_t highest = 0;

  void add(int64_t target) {
    ++targets;
    lowest = std::min(lowest, target);
    highest = std::max(highest, target);
  }
  void check(const char* loss, int64_t classes) const {
    if (lowest >= 0 && highest < classes) return;
    throw ConfigError(fmt::format("{}: a target is {}, but there are {} classes (0 to {})", loss,
                                  lowest < 0 ? lowest : highest, classes, classes - 1));
  }
};

TargetCounts count_targets(const at::Tensor& targets, int64_t ignored) {
  const at::Tensor all = targets.contiguous();
  const auto* const target = all.data_ptr<int64_t>();
  TargetCounts counts;
  for (int64_t i = 0; i < all.numel(); ++i) {
    if (target[i] != ignored) counts.add(target[i]);
  }
  return counts;
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
struct PixelCounts : TargetCounts {
  int64_t correct = 0;  ///< whose largest logit, the first of equal ones, is the target's
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
      counts.add(target[i]);
      int64_t best = 0;
      for (int64_t c = 1; c < classes; ++c) {
        if (score[c * pixels + i] > score[best * pixels + i]) best = c;
      }
      if (best == target[i]) ++counts.correct;
    }
  }
  return counts;
}

void check_same_shape(const char* loss, const at::Tensor& output, const at::Tensor& targets) {
  if (!targets.defined() || output.sizes() != targets.sizes() || output.dim() < 1 ||
      output.numel() == 0 || targets.scalar_type() != output.scalar_type()) {
    throw ConfigError(fmt::format("{}: expected {} targets of shape {}, found {}", loss,
                                  c10::toString(output.scalar_type()), sizes_text(output),
                                  found_text(targets)));
  }
}

/// Of a mean over the micro-batch.
LossResult mean_loss(const at::Tensor& mean, int64_t samples, const MiniBatchSize& mini_batch,
                     const at::Tensor& correct = {}) {
  LossResult result;
  result.targets = samples;
  const auto here = static_cast<double>(samples);
  result.scaled_loss = mean * (here / static_cast<double>(mini_batch.samples));
  set_numbers(result, mean.detach(), here, correct);
  return result;
}

constexpr const char* kCrossEntropy = "cross-entropy";
constexpr const char* kMeanSquaredError = "mean-squared-error";
constexpr const char* kBinaryCrossEntropy = "binary-cross-entropy";
constexpr const char* kModel = "model";

}  // namespace

void check_targets(const at::Tensor& targets, int64_t classes, const LossSpec& spec) {
  count_targets(targets, spec.ignore_index).check(kCrossEntropy, classes);
}

void set_cross_entropy(LossResult& result, const at::Tensor& losses,
                       const MiniBatchSize& mini_batch, const at::Tensor& correct) {
  set_loss(result, losses.sum(), losses.detach().sum(at::kDouble), mini_batch, correct);
}

bool is_cross_entropy(const LossSpec& spec) { return spec.name == kCrossEntropy; }

LossResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                         const MiniBatchSize& mini_batch, const LossSpec& spec) {
  const int64_t dimension = checked_class_dimension(logits, targets);
  check_mini_batch(kCrossEntropy, mini_batch.samples);
  const int64_t classes = logits.size(dimension);
  const TargetCounts counts = count_targets(targets, spec.ignore_index);
  counts.check(kCrossEntropy, classes);
  const bool is_flat = logits.dim() == 2;
  const at::Tensor rows = is_flat ? logits : logits.movedim(dimension, -1).reshape({-1, classes});
  const at::Tensor flat_targets = beside(logits, is_flat ? targets : targets.reshape({-1}));
  const RowLosses made = row_losses(rows, flat_targets, spec.ignore_index, spec.label_smoothing,
                                    mini_batch.output_is_free);
  LossResult result;
  result.targets = counts.targets;
  set_cross_entropy(result, made.losses, mini_batch, made.best.eq(flat_targets).sum());
  return result;
}

LossResult auxiliary_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                   const MiniBatchSize& mini_batch, const LossSpec& spec) {
  const auto most = static_cast<int64_t>(1 + spec.auxiliary_weights.size());
  if (logits.dim() != 3 || logits.size(1) < 1 || logits.size(1) > most) {
    throw ConfigError(
        fmt::format("cross-entropy: expected logits of shape [batch, 1 to {}, classes], found {}",
                    most, sizes_text(logits)));
  }
  const MiniBatchSize size{.samples = mini_batch.samples, .targets = mini_batch.targets};
  LossResult result = cross_entropy(logits.select(1, 0), targets, size, spec);
  for (int64_t i = 1; i < logits.size(1); ++i) {
    const double weight = spec.auxiliary_weights[static_cast<size_t>(i - 1)];
    const LossResult other = cross_entropy(logits.select(1, i), targets, size, spec);
    result.scaled_loss = result.scaled_loss + other.scaled_loss * weight;
    result.loss_sum += weight * other.loss_sum;
    if (result.unread.defined()) result.unread[0].add_(other.unread[0], weight);
  }
  return result;
}

int64_t count_in_largest(const at::Tensor& logits, const at::Tensor& targets, int64_t most,
                         const LossSpec& spec) {
  if (!spec.auxiliary_weights.empty() && logits.dim() == 3) {
    LossSpec first = spec;
    first.auxiliary_weights.clear();
    return count_in_largest(logits.select(1, 0), targets, most, first);
  }
  const int64_t dimension = checked_class_dimension(logits, targets);
  const int64_t classes = logits.size(dimension);
  count_targets(targets, spec.ignore_index).check(kCrossEntropy, classes);
  const at::Tensor rows = logits.detach().movedim(dimension, -1).reshape({-1, classes});
  const at::Tensor there = beside(logits, targets.reshape({-1, 1}));
  const at::Tensor counts = there.ne(spec.ignore_index);
  const at::Tensor own = rows.gather(1, there.clamp(0, classes - 1));
  const at::Tensor numbers = at::arange(classes, there.options());
  const at::Tensor is_before =
      rows.gt(own).logical_or_(rows.eq(own).logical_and_(numbers.lt(there)));
  const at::Tensor is_in = is_before.sum(1, /*keepdim=*/true).lt(most);
  return is_in.logical_and(counts).sum().item<int64_t>();
}

LossResult pixel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                               const MiniBatchSize& mini_batch) {
  check_pixels(logits, targets);
  check_mini_batch("cross-entropy per pixel", mini_batch.samples);
  const bool on_host = logits.device().is_cpu();
  const PixelCounts counts =
      on_host ? count_pixels(logits, targets) : PixelCounts{count_targets(targets, kNoTarget)};
  counts.check("cross-entropy per pixel", logits.size(1));
  const at::Tensor there = beside(logits, targets);
  const at::Tensor sum =
      at::nll_loss2d(at::log_softmax(logits, 1), there, /*weight=*/{}, kReductionSum, kNoTarget);
  LossResult result;
  result.targets = counts.targets;
  set_loss(result, sum, sum.detach(), mini_batch,
           on_host ? at::Tensor() : logits.detach().argmax(1).eq(there).sum());
  if (on_host) result.correct = counts.correct;
  return result;
}

LossResult mean_squared_error(const at::Tensor& output, const at::Tensor& targets,
                              const MiniBatchSize& mini_batch) {
  check_same_shape(kMeanSquaredError, output, targets);
  check_mini_batch(kMeanSquaredError, mini_batch.samples);
  return mean_loss(at::mse_loss(output, beside(output, targets)), output.size(0), mini_batch);
}

LossResult binary_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                const MiniBatchSize& mini_batch) {
  check_same_shape(kBinaryCrossEntropy, logits, targets);
  check_mini_batch(kBinaryCrossEntropy, mini_batch.samples);
  const double lowest = targets.min().item<double>();
  const double highest = targets.max().item<double>();
  if (!(lowest >= 0 && highest <= 1)) {
    throw ConfigError(fmt::format("{}: expected targets from 0 to 1, found {}", kBinaryCrossEntropy,
                                  lowest >= 0 ? highest : lowest));
  }
  const at::Tensor there = beside(logits, targets);
  at::Tensor correct;
  if (logits.numel() == logits.size(0)) correct = logits.detach().gt(0).eq(there.gt(0.5)).sum();
  return mean_loss(at::binary_cross_entropy_with_logits(logits, there), logits.size(0), mini_batch,
                   correct);
}

LossResult own_loss(const at::Tensor& output, const at::Tensor& targets,
                    const MiniBatchSize& mini_batch) {
  if (output.dim() != 1 || output.numel() == 0) {
    throw ConfigError(
        fmt::format("the model's own loss: expected one number for each sample, found shape {}",
                    sizes_text(output)));
  }
  check_mini_batch("the model's own loss", mini_batch.samples);
  const at::Tensor mean = output.mean();
  if (!targets.defined()) return mean_loss(mean, output.size(0), mini_batch);
  LossResult result;
  result.targets = targets.item<int64_t>();
  const auto here = static_cast<double>(result.targets);
  const double all = targets_of(mini_batch, result.targets);
  result.scaled_loss = mean * (here / all);
  // A mean over no targets is no number; its gradient, times 0, is 0.
  const at::Tensor value = mean.detach();
  set_numbers(result, result.targets > 0 ? value : at::zeros_like(value),
              here * static_cast<double>(mini_batch.samples) / all, {});
  return result;
}

LossSpec loss_for(const Model& model, const LossSpec& spec) {
  LossSpec result = spec;
  if (result.name.empty()) result.name = model.returns_loss() ? kModel : kCrossEntropy;
  const bool is_cross_entropy = result.name == kCrossEntropy;
  if (!is_cross_entropy && result.name != kMeanSquaredError && result.name != kBinaryCrossEntropy &&
      result.name != kModel) {
    throw ConfigError(
        fmt::format("unknown loss '{}': expected one of {}; for any other a model returns its own "
                    "loss (export it with its labels among the inputs), which is the loss {}",
                    result.name, kLossNames, kModel));
  }
  if (!(result.label_smoothing >= 0 && result.label_smoothing < 1)) {
    throw ConfigError(fmt::format("label smoothing must be at least 0 and below 1, found {}",
                                  result.label_smoothing));
  }
  if (!is_cross_entropy && result.label_smoothing > 0) {
    throw ConfigError(
        fmt::format("label smoothing is a part of the loss cross-entropy, not of {}", result.name));
  }
  if (model.graph().outputs().size() != 1) {
    throw ConfigError(fmt::format("training needs a model with one output, '{}' has {}",
                                  model.name(), model.graph().outputs().size()));
  }
  const Shape& output = model.output_shape();
  if (model.returns_loss() && result.name != kModel) {
    throw ConfigError(fmt::format(
        "the model '{}' has a loss of its own, its first output: expected the loss model, found {}",
        model.name(), result.name));
  }
  if (result.name == kModel && !output.empty()) {
    throw ConfigError(fmt::format(
        "the loss model is for models whose first output is one number, their loss; that of '{}' "
        "has {} for each sample",
        model.name(), detail::shape_text(output)));
  }
  if (is_cross_entropy && output.empty()) {
    throw ConfigError(fmt::format(
        "the model '{}' makes one number for a sample, cross-entropy needs one for each class",
        model.name()));
  }
  result.auxiliary_weights = model.auxiliary_weights();
  if (!is_cross_entropy && !result.auxiliary_weights.empty()) {
    throw ConfigError(
        fmt::format("the model '{}' has an auxiliary head, for the loss cross-entropy: found {}",
                    model.name(), result.name));
  }
  return result;
}

Loss make_loss(const LossSpec& spec) {
  if (spec.name == kMeanSquaredError) return mean_squared_error;
  if (spec.name == kBinaryCrossEntropy) return binary_cross_entropy;
  if (spec.name == kModel) return own_loss;
  if (!spec.auxiliary_weights.empty()) {
    return [spec](const at::Tensor& logits, const at::Tensor& targets,
                  const MiniBatchSize& mini_batch) {
      return auxiliary_cross_entropy(logits, targets, mini_batch, spec);
    };
  }
  return
      [spec](const at::Tensor& logits, const at::Tensor& targets, const MiniBatchSize& mini_batch) {
        return cross_entropy(logits, targets, mini_batch, spec);
      };
}

TargetSpec targets_for(const Model& model, const LossSpec& spec) {
  Shape shape = model.output_shape();
  if (spec.name == kModel) return {.needed = false, .shape = {}};
  if (spec.name != kCrossEntropy)
    return {.needed = true,
            .shape = std::move(shape),
            .type = at::kFloat,
            .are_probabilities = spec.name == kBinaryCrossEntropy};
  if (!model.auxiliary_weights().empty())
    return {.needed = true, .shape = {}, .classes = shape.back()};
  // As class_dimension() prefers it, without the batch.
  const size_t dimension = shape.size() == 2 ? 1 : 0;
  TargetSpec targets{.needed = true, .shape = shape, .classes = shape.at(dimension)};
  targets.shape.erase(targets.shape.begin() + static_cast<std::ptrdiff_t>(dimension));
  return targets;
}

bool counts_correct(const Model& model, const LossSpec& spec) {
  if (spec.name == kCrossEntropy) return true;
  if (spec.name != kBinaryCrossEntropy) return false;
  int64_t numbers = 1;
  for (const int64_t size : model.output_shape()) numbers *= size;
  return numbers == 1;
}

}  // namespace penstock::model
