// Only forwards, for evaluation. 4 stages, 4 micro-batches:
//
//   s0  F0 F1 F2 F3 .  .  .
//   s1  .  F0 F1 F2 F3 .  .
//   s2  .  .  F0 F1 F2 F3 .
//   s3  .  .  .  F0 F1 F2 F3
//
// Bubble (p-1)F once. No stash, no step, weight version 0 throughout. Messages: 1 per link and
// micro-batch.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::ForwardOnly>(const ScheduleShape& shape);

}  // namespace penstock::schedule
