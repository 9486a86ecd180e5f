#include "penstock/model/spread_vocabulary.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

namespace penstock::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// As the whole operators on the CPU do: c10::IndexError with the value and what was expected.
/// On other devices, which must not wait, the device stops. `fits`: of each value.
void require_all(const at::Tensor& fits, const at::Tensor& values, const char* what, int64_t end) {
  const at::Tensor all = fits.all();
  if (values.is_cuda()) return at::_assert_async(all);
  if (all.item<bool>()) return;
  const auto value = values.masked_select(fits.logical_not())[0].item<int64_t>();
  TORCH_CHECK_INDEX(false, what, " ", value, " is out of range: expected 0 to ", end - 1);
}

at::Tensor is_between(const at::Tensor& values, int64_t end) {
  return values.ge(0).logical_and_(values.lt(end));
}

int64_t class_dimension(const at::Tensor& logits) { return logits.dim() > 1 ? 1 : 0; }

struct LossArguments {
  VocabularyPart part;
  int64_t ignored = -100;
  double smoothing = 0;
  Team* team = nullptr;
};

/// For each target, over all classes: the logarithm of the sum of exponentials, less the target's
/// logit; all against the largest.
class LossesOfParts : public torch::autograd::Function<LossesOfParts> {
 public:
  /// The losses, and the largest logits.
  static variable_list forward(AutogradContext* context, const at::Tensor& logits,
                               const at::Tensor& targets, const LossArguments& given) {
    const int64_t dim = class_dimension(logits);
    const at::Tensor is_counted = targets.ne(given.ignored);
    // Before members exchange: all of them see the same targets.
    require_all(is_counted.logical_not().logical_or_(is_between(targets, given.part.all)), targets,
                "target", given.part.all);
    at::Tensor largest = logits.amax(dim);
    if (given.team != nullptr) largest = given.team->largest(largest);
    const at::Tensor shifted = logits - largest.unsqueeze(dim);
    const at::Tensor exponentials = shifted.exp();
    const at::Tensor places = targets - given.part.first;
    const at::Tensor is_own = is_between(places, given.part.own).to(logits.scalar_type());
    const at::Tensor picked_at = places.clamp(0, given.part.own - 1).unsqueeze(dim);
    std::vector<at::Tensor> numbers{shifted.gather(dim, picked_at).squeeze(dim) * is_own,
                                    exponentials.sum(dim)};
    if (given.smoothing > 0) numbers.push_back(shifted.sum(dim));
    at::Tensor sums = at::stack(numbers);
    if (given.team != nullptr) sums = given.team->sum(sums);
    const at::Tensor logarithm = sums[1].log();
    at::Tensor losses = logarithm - sums[0];
    if (given.smoothing > 0) {
      const auto classes = static_cast<double>(given.part.all);
      losses = losses * (1 - given.smoothing) +
               (logarithm * classes - sums[2]) * (given.smoothing / classes);
    }
    context->save_for_backward(
        {exponentials / sums[1].unsqueeze(dim), picked_at, is_own.unsqueeze(dim), is_counted});
    context->saved_data["smoothing"] = given.smoothing;
    context->saved_data["classes"] = given.part.all;
    return {at::where(is_counted, losses, at::zeros_like(losses)), largest};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const variable_list saved = context->get_saved_variables();
    const double smoothing = context->saved_data["smoothing"].toDouble();
    const auto classes = static_cast<double>(context->saved_data["classes"].toInt());
    const int64_t dim = class_dimension(saved[0]);
    at::Tensor result = saved[0] - smoothing / classes;
    result.scatter_add_(dim, saved[1], saved[2] * (smoothing - 1));
    // Targets that do not count add nothing, whatever number stands there.
    result = at::where(saved[3].unsqueeze(dim), result * gradients[0].unsqueeze(dim),
                       at::zeros_like(result));
    return {result, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor spread_embedding(const at::Tensor& table, const at::Tensor& tokens, int64_t padding,
                            const VocabularyPart& part) {
  require_all(is_between(tokens, part.all), tokens, "token", part.all);
  const at::Tensor places = tokens - part.first;
  const int64_t own_padding = padding - part.first;
  const bool has_padding = padding >= 0 && own_padding >= 0 && own_padding < part.own;
  const at::Tensor rows =
      at::embedding(table, places.clamp(0, part.own - 1), has_padding ? own_padding : -1);
  return rows.masked_fill(is_between(places, part.own).logical_not().unsqueeze(-1), 0);
}

SpreadLosses spread_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                  const VocabularyPart& part, int64_t ignored, double smoothing,
                                  Team* team) {
  const variable_list made = LossesOfParts::apply(
      logits, targets,
      LossArguments{.part = part, .ignored = ignored, .smoothing = smoothing, .team = team});
  return {made[0], made[1].detach()};
}

}  // namespace penstock::model
