// The cross-entropy of logits whose classes, a vocabulary, are spread over a team: the members
// exchange numbers per token, never the logits (Shoeybi et al. 2019, section 3).
#pragma once

#include <functional>

#include "penstock/model/loss.h"
#include "penstock/model/team_functions.h"

namespace penstock::model {

/// A loss of the member's part of the model's output.
using TeamLoss =
    std::function<LossResult(const at::Tensor& part, const at::Tensor& targets,
                             const MiniBatchSize& mini_batch, Team& team, const Division& parts)>;

/// That of the spec (loss_for()); empty: it needs the whole output.
TeamLoss make_team_loss(const LossSpec& spec);

/// cross_entropy() of logits [batch, classes] or [batch, places, classes], of which `part` has the
/// member's classes. Every member gets the same loss. Exchanges four numbers per token: the
/// largest logit, the sums of the exponentials and of the target's logit (with label smoothing, of
/// all logits, too), and the class of the largest. Throws ConfigError as cross_entropy().
LossResult team_cross_entropy(const at::Tensor& part, const at::Tensor& targets,
                              const MiniBatchSize& mini_batch, const LossSpec& spec, Team& team,
                              const Division& parts);

}  // namespace penstock::model
