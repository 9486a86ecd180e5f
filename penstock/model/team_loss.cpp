#include "penstock/model/team_loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the members agree on for each token.
struct TokenSums {
  at::Tensor losses;  ///< 0 where the target is ignored
  at::Tensor correct;
};

struct Tokens {
  at::Tensor targets;  ///< places in the member's classes, clamped
  at::Tensor is_own;   ///< the target is one of the member's classes
  at::Tensor counts;   ///< the target is not ignored
};

struct Classes {
  int64_t begin = 0;  ///< the member's first one
  int64_t own = 0;
  int64_t all = 0;
};

/// Of a token's classes: -log softmax of the target, (1 - s) times, and s times the mean over all.
class SpreadCrossEntropy : public torch::autograd::Function<SpreadCrossEntropy> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& rows,
                               const Tokens& tokens, Team* team, const Classes& classes,
                               double smoothing) {
    const at::Tensor largest = team->largest(rows.amax(1));
    const at::Tensor moved = rows - largest.unsqueeze(1);
    at::Tensor exponentials = moved.exp();
    const at::Tensor own_logit = moved.gather(1, tokens.targets.unsqueeze(1)).squeeze(1) *
                                 tokens.is_own.to(rows.scalar_type());
    std::vector<at::Tensor> numbers{exponentials.sum(1), own_logit};
    if (smoothing > 0) numbers.push_back(moved.sum(1));
    const at::Tensor sums = team->sum(at::stack(numbers));
    const at::Tensor log_sum = sums[0].log();
    at::Tensor losses = log_sum - sums[1];
    if (smoothing > 0) {
      const at::Tensor mean = log_sum - sums[2] / static_cast<double>(classes.all);
      losses = losses * (1 - smoothing) + mean * smoothing;
    }
    losses = losses * tokens.counts.to(losses.scalar_type());
    context->save_for_backward(
        {exponentials.div_(sums[0].unsqueeze(1)), tokens.targets, tokens.is_own, tokens.counts});
    context->saved_data["smoothing"] = smoothing;
    context->saved_data["classes"] = classes.all;
    return {losses, largest_class(rows, largest, *team, classes)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const double smoothing = context->saved_data["smoothing"].toDouble();
    const auto classes = static_cast<double>(context->saved_data["classes"].toInt());
    const at::Tensor& shares = saved[0];
    const at::Tensor own = saved[2].to(shares.scalar_type()) * (1 - smoothing);
    at::Tensor gradient = smoothing > 0 ? shares - smoothing / classes : shares.clone();
    gradient.scatter_add_(1, saved[1].unsqueeze(1), -own.unsqueeze(1));
    gradient.mul_((gradients[0] * saved[3].to(shares.scalar_type())).unsqueeze(1));
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  /// The first class of the largest logit of each token, over all members.
  static at::Tensor largest_class(const at::Tensor& rows, const at::Tensor& largest, Team& team,
                                  const Classes& classes) {
    const at::Tensor place = rows.argmax(1);
    const at::Tensor is_largest = rows.amax(1).eq(largest);
    const at::Tensor mine =
        at::where(is_largest, place + classes.begin, at::full_like(place, classes.all));
    return team.largest(mine.neg()).neg();
  }
};

Classes classes_of(const Team& team, const Division& parts) {
  const auto first = parts.lengths.begin();
  const auto member = static_cast<std::ptrdiff_t>(team.member());
  return {.begin = std::accumulate(first, first + member, int64_t{0}),
          .own = parts.lengths[static_cast<size_t>(member)],
          .all = std::accumulate(first, parts.lengths.end(), int64_t{0})};
}

void check(const at::Tensor& part, const at::Tensor& targets, const MiniBatchSize& mini_batch) {
  if (!targets.defined() || targets.scalar_type() != at::kLong ||
      targets.sizes() != part.sizes().slice(0, part.dim() - 1)) {
    throw ConfigError(fmt::format(
        "cross-entropy: expected int64 targets for logits whose member's part is {}, found {}",
        detail::shape_text(part.sizes().vec()),
        targets.defined() ? detail::shape_text(targets.sizes().vec()) : "none"));
  }
  if (mini_batch.samples < 1)
    throw ConfigError(
        fmt::format("cross-entropy: samples in the mini-batch must be at least 1, found {}",
                    mini_batch.samples));
}

}  // namespace

LossResult team_cross_entropy(const at::Tensor& part, const at::Tensor& targets,
                              const MiniBatchSize& mini_batch, const LossSpec& spec, Team& team,
                              const Division& parts) {
  check(part, targets, mini_batch);
  const Classes classes = classes_of(team, parts);
  const at::Tensor wanted = targets.reshape({-1});
  const at::Tensor counts = wanted.ne(spec.ignore_index);
  LossResult result;
  result.targets = counts.sum().item<int64_t>();
  check_targets(wanted, classes.all, spec);
  const at::Tensor there = wanted.to(part.device(), /*non_blocking=*/true);
  const at::Tensor places = there - classes.begin;
  const at::Tensor counts_there = there.ne(spec.ignore_index);
  const Tokens tokens{
      .targets = places.clamp(0, classes.own - 1),
      .is_own = (places >= 0).logical_and_(places < classes.own).logical_and_(counts_there),
      .counts = counts_there};
  // As float32, whatever the layers compute in.
  at::Tensor rows = part.reshape({-1, classes.own});
  if (rows.scalar_type() != at::kDouble) rows = rows.to(at::kFloat);
  const variable_list made =
      SpreadCrossEntropy::apply(rows, tokens, &team, classes, spec.label_smoothing);
  set_cross_entropy(result, made[0], mini_batch, made[1].detach().eq(there).sum());
  return result;
}

TeamLoss make_team_loss(const LossSpec& spec) {
  if (!is_cross_entropy(spec) || !spec.auxiliary_weights.empty()) return {};
  return [spec](const at::Tensor& part, const at::Tensor& targets, const MiniBatchSize& mini_batch,
                Team& team, const Division& parts) {
    return team_cross_entropy(part, targets, mini_batch, spec, team, parts);
  };
}

}  // namespace penstock::model
