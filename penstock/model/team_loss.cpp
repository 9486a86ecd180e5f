#include "penstock/model/team_loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "penstock/model/shapes.h"
#include "penstock/model/spread_vocabulary.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

/// The first class of the largest logit of each target, over all members.
at::Tensor largest_class(const at::Tensor& rows, const at::Tensor& largest, Team& team,
                         const VocabularyPart& classes) {
  const at::NoGradGuard no_grad;
  const at::Tensor place = rows.argmax(1);
  const at::Tensor mine =
      at::where(rows.amax(1).eq(largest), place + classes.first, at::full_like(place, classes.all));
  return team.largest(mine.neg()).neg();
}

VocabularyPart classes_of(const Team& team, const Division& parts) {
  const auto first = parts.lengths.begin();
  const auto member = static_cast<std::ptrdiff_t>(team.member());
  return {.first = std::accumulate(first, first + member, int64_t{0}),
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
  const VocabularyPart classes = classes_of(team, parts);
  const at::Tensor wanted = targets.reshape({-1});
  check_targets(wanted, classes.all, spec);
  LossResult result;
  result.targets = wanted.ne(spec.ignore_index).sum().item<int64_t>();
  const at::Tensor there = wanted.to(part.device(), /*non_blocking=*/true);
  // As float32, whatever the layers compute in.
  at::Tensor rows = part.reshape({-1, classes.own});
  if (rows.scalar_type() != at::kDouble) rows = rows.to(at::kFloat);
  const SpreadLosses made =
      spread_cross_entropy(rows, there, classes, spec.ignore_index, spec.label_smoothing, &team);
  const at::Tensor best = largest_class(rows.detach(), made.largest, team, classes);
  set_cross_entropy(result, made.losses, mini_batch, best.eq(there).sum());
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
