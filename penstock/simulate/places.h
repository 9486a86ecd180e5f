// On which worker of the cluster each worker of a schedule runs; internal to the simulator.
#pragma once

#include <vector>

#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/values.h"

namespace penstock::simulate::detail {

/// The cluster's worker for each worker of the schedule: the same number where the shape has a
/// worker_of_replica and no teams, or workers with several stages; otherwise according to
/// StageCost::first_worker. Throws ConfigError when one
/// lies outside the cluster or two are the same.
std::vector<int> places_of(const Costs& costs, const schedule::ScheduleShape& shape,
                           const schedule::WorkerTable& table);

}  // namespace penstock::simulate::detail
