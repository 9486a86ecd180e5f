// Rates as all tables, pages and messages show them.
#pragma once

#include <string>

namespace penstock {

/// Of samples, frames or steps per second: "1,050", "20.0", "0.522": whole from 100 on, thousands
/// apart; below, three digits. "-" where it is not finite.
std::string format_rate(double per_s);

}  // namespace penstock
