// How wide the tokens of a model are: what boundaries that travel as coefficients need.
#pragma once

#include <cstdint>

#include "penstock/model/model.h"

namespace penstock::job {

/// The last size that most values of places and numbers ([places, numbers], without the batch)
/// have; of a model without such values, that most values have. 0: none. O(layers).
int64_t token_width(const model::Model& model);

}  // namespace penstock::job
