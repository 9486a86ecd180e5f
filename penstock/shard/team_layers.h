// The layers of a model for teams that stand between the parts of others. Without a team in their
// context, as for a profile of one member, they make values of the right sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/model/team_functions.h"

namespace penstock::shard {

using LayerPtr = std::shared_ptr<const model::Layer>;

/// model::sum_forward(): partial becomes equal.
LayerPtr make_sum_forward();
/// model::sum_backward(): equal is read as pending.
LayerPtr make_sum_backward();
/// model::gather(): part becomes equal.
LayerPtr make_gather(model::Division division);
/// model::gather_sum(): part is read as pending.
LayerPtr make_gather_sum(model::Division division);

/// The places of a sequence, dimension 1, of a team of `members` which all have as many.
/// model::gather(): part becomes equal.
LayerPtr make_sequence_gather(int members);
/// model::gather_sum(): part is read as pending.
LayerPtr make_sequence_gather_sum(int members);
/// model::part(): equal becomes part.
LayerPtr make_sequence_part(int members);
/// model::sum_part(): partial becomes part.
LayerPtr make_sequence_sum_part(int members);

/// Adds a bias [numbers] along a dimension, of the batch (0) or a later one. `sums_gradients`: to a
/// member's part of the places; sums_weight_gradients() says so.
LayerPtr make_bias(int64_t numbers, int64_t dimension, bool sums_gradients = false);
/// Makes its first input, and gives its gradient to all `count` inputs: equal values of members of
/// the stage before.
LayerPtr make_join(int count);
/// Makes its input, and no gradient: another member gives that.
LayerPtr make_without_gradient();

}  // namespace penstock::shard
