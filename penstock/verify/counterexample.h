// find_deadlock() for a schedule whose facts are known.
#pragma once

#include <optional>

#include "penstock/verify/facts.h"
#include "penstock/verify/values.h"

namespace penstock::verify {

/// Nothing when every worker reaches the end of its list. `facts` are those of a well-placed
/// schedule (facts.h).
std::optional<Counterexample> find_deadlock(const Facts& facts, int64_t credits);

}  // namespace penstock::verify
