// A generator is the specialisation of one template for its strategy, declared in its header and
// defined in its source file. The table in generate.cpp takes the address of every strategy's
// generator, so a strategy without a generator does not link.
#pragma once

#include <vector>

#include "penstock/plan/strategy.h"
#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// One list of actions per worker.
using WorkerLists = std::vector<std::vector<Action>>;

/// The compute actions of every worker for a shape that check_runs() has accepted. O(actions +
/// workers).
template <Strategy strategy>
WorkerLists generate_compute(const ScheduleShape& shape);

}  // namespace penstock::schedule
