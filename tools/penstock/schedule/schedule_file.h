// A schedule from a file, made ready to be simulated: what `simulate --schedule` and `report
// --schedule` read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/schedule/schedule.h"

namespace penstock::tool {

/// As schedule::parse_schedule. Throws ConfigError for a file that is JSON, as a plan is, or a
/// page.
schedule::Schedule parse_schedule_file(const std::string& path,
                                       std::vector<std::string>* notes = nullptr);

/// Lowered and proven sound with that many credits per channel. What holds compute actions alone
/// (also PyTorch's CSV) gets the messages of the plan's links, without a plan (null) those of
/// neighbouring stages. Throws ParseError, and ConfigError for a schedule that is not sound or does
/// not fit the plan's links. Linear in the number of actions.
schedule::Schedule read_schedule(const std::string& path, const plan::Plan* plan, int64_t credits);

}  // namespace penstock::tool
