// Which optimisers can say their next step out of their state alone, before its gradient is known
// (next_step.h makes it). Torch-free.
//
//   says_next_step({.momentum = 0}) == false;
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "penstock/model/optimizer_spec.h"

namespace penstock::model {

/// Of these the state has an average of gradients; of SGD and RMSprop with momentum only.
inline constexpr std::array kSayNextStep = {
    OptimizerKind::Sgd,    OptimizerKind::Adam,    OptimizerKind::AdamW, OptimizerKind::NAdam,
    OptimizerKind::NAdamW, OptimizerKind::RmsProp, OptimizerKind::Lion};

constexpr bool says_next_step(const OptimizerSpec& spec) {
  const bool needs_momentum =
      spec.kind == OptimizerKind::Sgd || spec.kind == OptimizerKind::RmsProp;
  const bool is_listed =
      std::find(kSayNextStep.begin(), kSayNextStep.end(), spec.kind) != kSayNextStep.end();
  return is_listed && (!needs_momentum || spec.momentum > 0);
}

/// "sgd and rmsprop with momentum, adam, ...": for messages.
inline std::string next_step_names() {
  std::string names;
  for (const OptimizerKind kind : kSayNextStep) {
    if (!names.empty()) names += ", ";
    names += to_string(kind);
    if (takes(kind, &OptimizerSpec::momentum)) names += " with momentum";
  }
  return names;
}

}  // namespace penstock::model
