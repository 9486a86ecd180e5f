// Says why there is no plan: what binds, and the minimum memory required. Internal to the
// planner.
#pragma once

#include <string>
#include <string_view>

#include "penstock/planner/families/split_finder.h"

namespace penstock::planner {

/// The reason of families whose turn did not come.
inline constexpr std::string_view kNotInTime =
    "not planned within the time limit: a longer one gives the search more time";

/// The same where they would have needed more memory.
inline constexpr std::string_view kNotInMemory =
    "not planned within the memory budget (a larger one gives the search more)";

/// "no 1f1b plan for 4 workers fits into 1.00 GB per worker".
std::string does_not_fit(const Context& context, plan::Strategy strategy);

/// The same with the minimum memory required, its split, the stage that binds and the layer in
/// it that needs most.
std::string why_nothing_fits(const Context& context, SplitFinder& finder, const Family& family);

/// Empty when every stage of the plan keeps the limit of its workers; otherwise the same for this
/// split.
std::string over_limit(const Context& context, const Split& split, const plan::Plan& plan);

/// By how many bytes the stage that misses its limit by most does; 0: none does.
int64_t beyond_limit(const Context& context, const Split& split, const plan::Plan& plan);

}  // namespace penstock::planner
