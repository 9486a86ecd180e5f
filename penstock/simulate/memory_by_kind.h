// What the largest memory of each worker consists of, as a schedule says.
//
//   const MemoryBytes first = memory_by_kind(schedule, costs_of(plan)).front();
//   first[MemoryKind::Activations];
#pragma once

#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/simulate/costs.h"
#include "penstock/util/process/memory_kinds.h"

namespace penstock::simulate {

/// By worker; the sums are Result::peak_memory_bytes of simulate(). Throws ConfigError when
/// `schedule` is not lowered or costs do not match its stages. O(actions). Pure.
std::vector<MemoryBytes> memory_by_kind(const schedule::Schedule& schedule, const Costs& costs);

}  // namespace penstock::simulate
