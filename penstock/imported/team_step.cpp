#include "penstock/imported/team_step.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "penstock/model/spread_vocabulary.h"
#include "penstock/model/team_functions.h"
#include "penstock/util/check.h"

namespace penstock::imported {
namespace {

model::VocabularyPart part_of(const TeamStep& step) {
  const model::TensorPart::Run& run = step.runs.front();
  return {.first = run.begin, .own = run.length, .all = step.whole};
}

model::Division division_of(const TeamStep& step) {
  return {.dimension = static_cast<int64_t>(step.dimension), .lengths = step.lengths};
}

/// logits, targets, reduction, ignored targets, label smoothing: as cross_entropy_loss of the whole
/// logits [targets, classes, ...], of which each member has some classes (Shoeybi et al. 2019,
/// section 3): the same number for all.
at::Tensor cross_entropy_of_parts(const TeamStep& step, const std::vector<c10::IValue>& arguments,
                                  model::Team* team) {
  const model::VocabularyPart part = part_of(step);
  const int64_t reduction = arguments[2].toInt();
  const int64_t ignored = arguments[3].toInt();
  const at::Tensor logits = arguments[0].toTensor();
  const at::Tensor targets = arguments[1].toTensor();
  const at::ScalarType type = logits.scalar_type();
  // Sums of many exponentials need float32, as in the whole operator.
  const bool is_short = type == at::kHalf || type == at::kBFloat16;
  at::Tensor loss =
      model::spread_cross_entropy(is_short ? logits.to(at::kFloat) : logits, targets, part, ignored,
                                  arguments[4].toScalar().toDouble(), team)
          .losses;
  if (reduction != 0) loss = loss.sum();
  if (reduction == 1) loss = loss / targets.ne(ignored).sum();
  return is_short ? loss.to(type) : loss;
}

/// table, tokens, padding: rows of the member's part of a table; zeros for tokens of others.
at::Tensor own_rows(const TeamStep& step, const std::vector<c10::IValue>& arguments) {
  return model::spread_embedding(arguments[0].toTensor(), arguments[1].toTensor().to(at::kLong),
                                 arguments[2].toInt(), part_of(step));
}

at::Tensor own_part(const TeamStep& step, const at::Tensor& whole, model::Team* team) {
  if (team != nullptr && whole.requires_grad() && at::GradMode::is_enabled())
    return model::part(whole, *team, division_of(step));
  return own_runs(whole, step);
}

/// Of the member's part. Without a team those of others are zeros.
at::Tensor all_places(const TeamStep& step, const at::Tensor& own, model::Team* team) {
  if (team != nullptr) {
    return step.kind == TeamStep::Kind::Gather ? model::gather(own, *team, division_of(step))
                                               : model::gather_sum(own, *team, division_of(step));
  }
  const auto dimension = static_cast<int64_t>(step.dimension);
  std::vector<int64_t> missing = own.sizes().vec();
  missing.at(step.dimension) = step.whole - own.size(dimension);
  return at::cat({own, at::zeros(missing, own.options())}, dimension);
}

}  // namespace

std::string target_of(TeamStep::Kind kind) {
  switch (kind) {
    case TeamStep::Kind::SumForward:
      return "penstock.sum_forward";
    case TeamStep::Kind::SumPart:
      return "penstock.sum_part";
    case TeamStep::Kind::SumBackward:
      return "penstock.sum_backward";
    case TeamStep::Kind::OwnPart:
      return "penstock.own_part";
    case TeamStep::Kind::Gather:
      return "penstock.gather";
    case TeamStep::Kind::GatherSum:
      return "penstock.gather_sum";
    case TeamStep::Kind::SumCopies:
      return "penstock.sum_copies";
    case TeamStep::Kind::OwnUnits:
      return "penstock.own_units";
    case TeamStep::Kind::Embedding:
      return "penstock.embedding";
    case TeamStep::Kind::CrossEntropy:
      return "penstock.cross_entropy";
    case TeamStep::Kind::Lstm:
    case TeamStep::Kind::WholeMask:
      break;
  }
  return {};
}

bool is_form(TeamStep::Kind kind) {
  return kind == TeamStep::Kind::SumBackward || kind == TeamStep::Kind::OwnPart ||
         kind == TeamStep::Kind::Gather || kind == TeamStep::Kind::GatherSum || is_of_copies(kind);
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
    case TeamStep::Kind::SumPart:
      return team == nullptr ? own_runs(arguments[0].toTensor(), step).contiguous()
                             : model::sum_part(arguments[0].toTensor(), *team, division_of(step));
    case TeamStep::Kind::OwnPart:
      return own_part(step, arguments[0].toTensor(), team);
    case TeamStep::Kind::Gather:
    case TeamStep::Kind::GatherSum:
      return all_places(step, arguments[0].toTensor(), team);
    case TeamStep::Kind::SumCopies:
      return team == nullptr ? arguments[0].toTensor()
                             : model::sum_copies(arguments[0].toTensor(), *team, step.runs[0].begin,
                                                 step.runs[0].length);
    case TeamStep::Kind::OwnUnits:
      return own_runs(arguments[0].toTensor(), step);
    case TeamStep::Kind::Embedding:
      return own_rows(step, arguments);
    case TeamStep::Kind::CrossEntropy:
      return cross_entropy_of_parts(step, arguments, team);
    case TeamStep::Kind::Lstm:
    case TeamStep::Kind::WholeMask:
      break;
  }
  PENSTOCK_CHECK(false, "no step of a team:", static_cast<int>(step.kind));
  return {};
}

}  // namespace penstock::imported
