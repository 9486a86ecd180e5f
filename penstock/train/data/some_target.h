// Data of which nothing can be learned: labels that were masked all alike.
//
//   require_some_target(data);
#pragma once

#include "penstock/train/data/dataset.h"

namespace penstock::train {

/// Throws ConfigError when the model's loss needs targets and none of the data's counts. Looks
/// until it finds one.
void require_some_target(const Dataset& data);

}  // namespace penstock::train
