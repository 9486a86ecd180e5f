// A search stopped before it was done. Whoever has an answer by then returns it.
#pragma once

#include "penstock/util/error.h"

namespace penstock::planner {

/// One of its limits was met: OutOfTime (time_limit.h) or OutOfMemory (memory_budget.h). Never
/// leaves make_plan().
class SearchEnded : public Error {
 public:
  using Error::Error;
};

}  // namespace penstock::planner
