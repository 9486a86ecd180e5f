// Which stages each stage receives from and sends to.
#pragma once

#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// Sources and targets of each stage, ascending, without duplicates.
struct Neighbours {
  std::vector<std::vector<StageId>> sources;
  std::vector<std::vector<StageId>> targets;
};

/// Throws ConfigError for a link that does not lead from a stage to a later one of the
/// `num_stages`. O(links log links).
Neighbours neighbours_of(std::vector<StageLink> links, int num_stages);

}  // namespace penstock::schedule
