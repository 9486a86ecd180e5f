// The optimiser of a run whose delays are compensated. Torch-free.
//
//   compensated_optimizer({.kind = AdamW}, plan::Compensation::Nesterov).kind == NAdamW
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "penstock/model/says_next_step.h"
#include "penstock/plan/compensation.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace detail {

/// What becomes of an optimiser with Nesterov's look-ahead.
struct LookingAhead {
  model::OptimizerKind kind;
  model::OptimizerKind form;
};
inline constexpr std::array<LookingAhead, 5> kLookingAhead = {
    {{model::OptimizerKind::Sgd, model::OptimizerKind::Sgd},
     {model::OptimizerKind::Adam, model::OptimizerKind::NAdam},
     {model::OptimizerKind::AdamW, model::OptimizerKind::NAdamW},
     {model::OptimizerKind::NAdam, model::OptimizerKind::NAdam},
     {model::OptimizerKind::NAdamW, model::OptimizerKind::NAdamW}}};

[[noreturn]] inline void refuse_optimizer(const model::OptimizerSpec& spec,
                                          plan::Compensation compensation, std::string_view why) {
  throw ConfigError(fmt::format("compensation {} does not work with the optimiser {}: {}",
                                to_string(compensation), to_string(spec.kind), why));
}

inline model::OptimizerSpec looking_ahead(model::OptimizerSpec spec,
                                          plan::Compensation compensation) {
  if (spec.amsgrad)
    refuse_optimizer(spec, compensation,
                     "Nesterov's form of it has no amsgrad; expected it without");
  const auto row = std::find_if(kLookingAhead.begin(), kLookingAhead.end(),
                                [&](const LookingAhead& one) { return one.kind == spec.kind; });
  if (row == kLookingAhead.end()) {
    refuse_optimizer(spec, compensation,
                     "it has no form with Nesterov's look-ahead; expected sgd, adam, adamw, nadam "
                     "or nadamw");
  }
  spec.kind = row->form;
  if (!takes(spec.kind, &model::OptimizerSpec::nesterov)) {
    spec.beta1 = plan::kLookAhead;
    return spec;
  }
  spec.nesterov = true;
  spec.momentum = plan::kLookAhead;
  spec.rate_factor *= 1 - plan::kLookAhead;
  for (model::ParameterGroup& group : spec.groups) group.rate_factor *= 1 - plan::kLookAhead;
  return spec;
}

}  // namespace detail

/// `spec` as the compensation needs it:
/// - nesterov: adam and adamw become nadam and nadamw, all with beta1 = plan::kLookAhead; sgd has
///   that momentum, Nesterov's step, and the rate times 1 minus it. Source: Ajanthan et al., ICML
///   2025, section 3 and its use of NAdam with decoupled decay in section 5.
/// - correct: it keeps a running mean of its steps beside its own state.
/// - others: as it is.
/// Throws ConfigError for an optimiser that the compensation does not work with, naming those that
/// it does.
inline model::OptimizerSpec compensated_optimizer(model::OptimizerSpec spec,
                                                  plan::Compensation compensation) {
  const plan::CompensationTraits& row = traits(compensation);
  if (row.changes_optimizer) return detail::looking_ahead(std::move(spec), compensation);
  if (row.asks_next_step && !says_next_step(spec)) {
    detail::refuse_optimizer(
        spec, compensation,
        "its state does not say its next step; expected one of " + model::next_step_names());
  }
  if (row.keeps_mean_step) spec.mean_step = true;
  return spec;
}

}  // namespace penstock::train
