// Serial: one worker trains the whole model.
//
//   s0  F0 B0 F1 B1 F2 B2 F3 B3
//
// One worker does the work of all stages, so there is no grid for 4 stages.
//
// Bubble 0. Peak stash 1 micro-batch. No messages. The reference that every synchronous schedule
// must equal.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::Serial>(const ScheduleShape& shape);

}  // namespace penstock::schedule
