#include "penstock/model/row_losses.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace penstock::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Of logits that are worked on at a time: the caches of a core hold them.
constexpr int64_t kBlockBytes = 1 << 20;

int64_t rows_at_a_time(const at::Tensor& logits) {
  if (!logits.is_cpu()) return logits.size(0);  // few operations, rather
  const auto row_bytes = static_cast<int64_t>(logits.element_size()) * logits.size(1);
  return std::max<int64_t>(1, kBlockBytes / row_bytes);
}

struct Rows {
  at::Tensor logits;
  at::Tensor targets;
  int64_t ignored;
  double smoothing;
  at::Tensor gradient;  ///< to be written; undefined: not wanted
};

RowLosses losses_of(const Rows& rows) {
  const auto classes = static_cast<double>(rows.logits.size(1));
  const at::Tensor best = rows.logits.argmax(1);
  at::Tensor logarithms = at::log_softmax(rows.logits, 1);
  const at::Tensor is_ignored = rows.targets.eq(rows.ignored);
  const at::Tensor places = rows.targets.masked_fill(is_ignored, 0).unsqueeze(1);
  at::Tensor losses = logarithms.gather(1, places).squeeze(1).mul_(rows.smoothing - 1);
  if (rows.smoothing > 0) losses.sub_(logarithms.sum(1), rows.smoothing / classes);
  losses.masked_fill_(is_ignored, 0);
  if (!rows.gradient.defined()) return {losses, best};
  at::Tensor gradient = logarithms.exp_();
  if (rows.smoothing > 0) gradient.sub_(rows.smoothing / classes);
  gradient.scatter_add_(1, places, at::full_like(losses, rows.smoothing - 1).unsqueeze(1));
  gradient.masked_fill_(is_ignored.unsqueeze(1), 0);
  rows.gradient.copy_(gradient);
  return {losses, best};
}

class LossesWithGradient : public torch::autograd::Function<LossesWithGradient> {
 public:
  /// The losses, and the best classes.
  static variable_list forward(AutogradContext* context, const at::Tensor& logits,
                               const at::Tensor& targets, int64_t ignored, double smoothing,
                               bool overwrites) {
    at::Tensor gradient;
    if (logits.requires_grad()) gradient = overwrites ? logits.detach() : at::empty_like(logits);
    std::vector<at::Tensor> losses;
    std::vector<at::Tensor> best;
    const int64_t count = rows_at_a_time(logits);
    for (int64_t first = 0; first < logits.size(0); first += count) {
      const auto part = [&](const at::Tensor& all) {
        return all.defined() ? all.slice(0, first, first + count) : all;
      };
      RowLosses made = losses_of({part(logits), part(targets), ignored, smoothing, part(gradient)});
      losses.push_back(std::move(made.losses));
      best.push_back(std::move(made.best));
    }
    if (gradient.defined()) context->save_for_backward({gradient});
    context->saved_data["overwrites"] = overwrites;
    at::Tensor all_best = at::cat(best);
    context->mark_non_differentiable({all_best});
    return {at::cat(losses), std::move(all_best)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    at::Tensor gradient = context->get_saved_variables().front();
    const at::Tensor factors = gradients.front().unsqueeze(1);
    const bool overwrites = context->saved_data["overwrites"].toBool();
    return {overwrites ? gradient.mul_(factors) : gradient * factors, {}, {}, {}, {}};
  }
};

}  // namespace

RowLosses row_losses(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored,
                     double smoothing, bool overwrites) {
  const variable_list made =
      LossesWithGradient::apply(logits, targets, ignored, smoothing, overwrites);
  return {made[0], made[1]};
}

bool is_alone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1 &&
         tensor.is_non_overlapping_and_dense();
}

}  // namespace penstock::model
