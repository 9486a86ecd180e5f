// 1F1B of PipeDream: after a warm-up each worker alternates one backward and one forward and never
// drains between mini-batches. 4 stages, 7 micro-batches:
//
//   s0  F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 F6 B3 .  B4 .  B5 .  B6
//   s1  .  F0 F1 F2 .  .  B0 F3 B1 F4 B2 F5 B3 F6 B4 .  B5 .  B6 .
//   s2  .  .  F0 F1 .  B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 .  B6 .  .
//   s3  .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 .  .  .
//
// Bubble 0 in steady state, (p-1)(F+B) once at the ends. Peak stash of a worker of stage s:
// min(warmup_depth(s), its micro-batches), which is p - s without replication. Messages: 2 per link
// and micro-batch. Replicated stages take turns (1F1B-RR): replica k of r runs the micro-batches k,
// k + r, k + 2r, ... in the same pattern. 2bw uses the same order and differs only in the versions
// (PipeDream-2BW, ICML 2021, section 3.1). Source: PipeDream, SOSP 2019, section 3.2. Differs: a
// replicated stage steps once per mini-batch like every other (docs/schedules.md), and versions
// start at 0 in each schedule.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::OneFOneB>(const ScheduleShape& shape);
template <>
WorkerLists generate_compute<Strategy::TwoBuffered>(const ScheduleShape& shape);

}  // namespace penstock::schedule
