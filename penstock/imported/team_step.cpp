#include "penstock/imported/team_step.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include "penstock/model/team_functions.h"
#include "penstock/util/check.h"

namespace penstock::imported {
namespace {

/// As the whole operators on the CPU do: c10::IndexError with the value and what was expected.
/// On other devices, which must not wait, the device stops. `fits`: of each value.
void require_all(const at::Tensor& fits, const at::Tensor& values, const char* what, int64_t end) {
  const at::Tensor all = fits.all();
  if (values.is_cuda()) return at::_assert_async(all);
  if (all.item<bool>()) return;
  const auto value = values.masked_select(fits.logical_not())[0].item<int64_t>();
  TORCH_CHECK_INDEX(false, what, " ", value, " is out of range: expected 0 to ", end - 1);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Whole numbers, `dim`: of the classes.
struct LossArguments {
  int64_t first = 0;    ///< class of the part
  int64_t classes = 0;  ///< of the whole
  int64_t reduction = 1;
  int64_t ignored = -100;
  double smoothing = 0;
  model::Team* team = nullptr;
};

/// For each target, over all classes: the logarithm of the sum of exponentials, less the target's
/// logit; all against the largest. Numbers cross for each target, never logits.
class LossOfParts : public torch::autograd::Function<LossOfParts> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, const LossArguments& own) {
    const int64_t dim = logits.dim() > 1 ? 1 : 0;
    const at::Tensor is_counted = targets.ne(own.ignored);
    // Before members exchange: all of them see the same targets.
    require_all(
        is_counted.logical_not().logical_or_(targets.ge(0).logical_and_(targets.lt(own.classes))),
        targets, "target", own.classes);
    at::Tensor largest = logits.amax(dim);
    if (own.team != nullptr) largest = own.team->largest(largest);
    const at::Tensor shifted = logits - largest.unsqueeze(dim);
    const at::Tensor exponentials = shifted.exp();
    const at::Tensor places = targets - own.first;
    const at::Tensor is_own = places.ge(0).logical_and_(places.lt(logits.size(dim)));
    const at::Tensor picked_at = places.clamp(0, logits.size(dim) - 1).unsqueeze(dim);
    std::vector<at::Tensor> numbers = {
        shifted.gather(dim, picked_at).squeeze(dim) * is_own.to(logits.scalar_type()),
        exponentials.sum(dim)};
    if (own.smoothing > 0) numbers.push_back(shifted.sum(dim));
    at::Tensor sums = at::stack(numbers);
    if (own.team != nullptr) sums = own.team->sum(sums);
    const at::Tensor counts = is_counted.to(logits.scalar_type());
    const at::Tensor logarithm = sums[1].log();
    at::Tensor losses = logarithm - sums[0];
    if (own.smoothing > 0) {
      const auto classes = static_cast<double>(own.classes);
      losses = losses * (1 - own.smoothing) +
               (logarithm * classes - sums[2]) * (own.smoothing / classes);
    }
    const at::Tensor number = counts.sum();
    context->save_for_backward({exponentials / sums[1].unsqueeze(dim), picked_at,
                                is_own.to(logits.scalar_type()).unsqueeze(dim), counts, number});
    context->saved_data["reduction"] = own.reduction;
    context->saved_data["smoothing"] = own.smoothing;
    context->saved_data["classes"] = own.classes;
    losses = at::where(counts.ne(0), losses, at::zeros_like(losses));
    if (own.reduction == 0) return losses;
    return own.reduction == 1 ? losses.sum() / number : losses.sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const variable_list saved = context->get_saved_variables();
    const int64_t reduction = context->saved_data["reduction"].toInt();
    const double smoothing = context->saved_data["smoothing"].toDouble();
    const auto classes = static_cast<double>(context->saved_data["classes"].toInt());
    const int64_t dim = saved[0].dim() > 1 ? 1 : 0;
    at::Tensor each = gradients[0] * saved[3];
    if (reduction == 1) each = each / saved[4];
    at::Tensor result = saved[0] - smoothing / classes;
    result.scatter_add_(dim, saved[1], saved[2] * (smoothing - 1));
    // Targets that do not count add nothing, whatever number stands there.
    result = at::where(saved[3].ne(0).unsqueeze(dim), result * each.unsqueeze(dim),
                       at::zeros_like(result));
    return {result, at::Tensor(), at::Tensor()};
  }
};

/// logits, targets, reduction, ignored targets, label smoothing: as cross_entropy_loss of the whole
/// logits [targets, classes, ...], of which each member has some classes (Shoeybi et al. 2019,
/// section 3): the same number for all.
at::Tensor cross_entropy_of_parts(const TeamStep& step, const std::vector<c10::IValue>& arguments,
                                  model::Team* team) {
  const LossArguments own{.first = step.runs.front().begin,
                          .classes = step.whole,
                          .reduction = arguments[2].toInt(),
                          .ignored = arguments[3].toInt(),
                          .smoothing = arguments[4].toScalar().toDouble(),
                          .team = team};
  const at::Tensor logits = arguments[0].toTensor();
  const at::Tensor targets = arguments[1].toTensor();
  const at::ScalarType type = logits.scalar_type();
  if (type != at::kHalf && type != at::kBFloat16) return LossOfParts::apply(logits, targets, own);
  // Sums of many exponentials need float32, as in the whole operator.
  const at::Tensor loss = LossOfParts::apply(logits.to(at::kFloat), targets, own);
  return loss.to(type);
}

/// table, tokens, padding: rows of the member's part of a table; zeros for tokens of others.
at::Tensor own_rows(const TeamStep& step, const std::vector<c10::IValue>& arguments) {
  const at::Tensor table = arguments[0].toTensor();
  const int64_t first = step.runs.front().begin;
  const int64_t rows = table.size(0);
  const at::Tensor tokens = arguments[1].toTensor().to(at::kLong);
  require_all(tokens.ge(0).logical_and_(tokens.lt(step.whole)), tokens, "token", step.whole);
  const at::Tensor places = tokens - first;
  const at::Tensor is_own = places.ge(0).logical_and_(places.lt(rows));
  const int64_t padding = arguments[2].toInt() - first;
  const at::Tensor found = at::embedding(table, places.clamp(0, rows - 1),
                                         padding >= 0 && padding < rows ? padding : -1);
  return found.masked_fill(is_own.logical_not().unsqueeze(-1), 0);
}

at::Tensor own_part(const TeamStep& step, const at::Tensor& whole, model::Team* team) {
  if (team != nullptr && whole.requires_grad() && at::GradMode::is_enabled()) {
    return model::part(
        whole, *team, {.dimension = static_cast<int64_t>(step.dimension), .lengths = step.lengths});
  }
  return own_runs(whole, step);
}

}  // namespace

std::string target_of(TeamStep::Kind kind) {
  switch (kind) {
    case TeamStep::Kind::SumForward:
      return "penstock.sum_forward";
    case TeamStep::Kind::SumBackward:
      return "penstock.sum_backward";
    case TeamStep::Kind::OwnPart:
      return "penstock.own_part";
    case TeamStep::Kind::Embedding:
      return "penstock.embedding";
    case TeamStep::Kind::CrossEntropy:
      return "penstock.cross_entropy";
    case TeamStep::Kind::WholeMask:
      break;
  }
  return {};
}

at::Tensor own_runs(const at::Tensor& whole, const TeamStep& step) {
  const auto dimension = static_cast<int64_t>(step.dimension);
  if (step.runs.size() == 1)
    return whole.narrow(dimension, step.runs.front().begin, step.runs.front().length);
  std::vector<at::Tensor> runs;
  for (const model::TensorPart::Run& run : step.runs)
    runs.push_back(whole.narrow(dimension, run.begin, run.length));
  return at::cat(runs, dimension);
}

at::Tensor run_team_step(const TeamStep& step, const std::vector<c10::IValue>& arguments,
                         model::Team* team) {
  switch (step.kind) {
    case TeamStep::Kind::SumForward:
      return team == nullptr ? arguments[0].toTensor()
                             : model::sum_forward(arguments[0].toTensor(), *team);
    case TeamStep::Kind::SumBackward:
      return team == nullptr ? arguments[0].toTensor()
                             : model::sum_backward(arguments[0].toTensor(), *team);
    case TeamStep::Kind::OwnPart:
      return own_part(step, arguments[0].toTensor(), team);
    case TeamStep::Kind::Embedding:
      return own_rows(step, arguments);
    case TeamStep::Kind::CrossEntropy:
      return cross_entropy_of_parts(step, arguments, team);
    case TeamStep::Kind::WholeMask:
      break;
  }
  PENSTOCK_CHECK(false, "no step of a team:", static_cast<int>(step.kind));
  return {};
}

}  // namespace penstock::imported
