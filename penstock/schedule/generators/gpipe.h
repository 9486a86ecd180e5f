// GPipe: all forwards of the mini-batch, then all its backwards, then the step. 4 stages, 4
// micro-batches (m = 4, p = 4):
//
//   s0  F0 F1 F2 F3 .  .  .  .  .  .  B0 B1 B2 B3
//   s1  .  F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3 .
//   s2  .  .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .  .
//   s3  .  .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .  .
//
// Bubble (p-1)(F+B) per mini-batch, a fraction (p-1)/(m+p-1). Peak stash m on every stage (the
// worker's own share where it is replicated). Messages: 2 per link and micro-batch. Source: Huang
// et al., NeurIPS 2019, section 2.3. Differs: backwards run in the order of the forwards, as in
// PyTorch, not in reverse; recomputation is not part of the schedule.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::GPipe>(const ScheduleShape& shape);

}  // namespace penstock::schedule
