// Eager 1F1B: 1F1B with a flush that begins with more forwards, so that a stage has work while its
// messages travel. 4 stages, 8 micro-batches, slack 1 (7, 5, 3 and 1 forwards before the first
// backward instead of 4, 3, 2 and 1):
//
//   w0  F0 F1 F2 F3 F4 F5 F6 B0 F7 B1 .  B2 .  B3 .  B4 .  B5 .  B6 .  B7
//   w1  .  F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 F7 B3 .  B4 .  B5 .  B6 .  B7 .
//   w2  .  .  F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 .  B6 .  B7 .  .
//   w3  .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 .  .  .
//
// Bubble (p-1)(F+B) per mini-batch of any length, as 1F1B; with latency less than 1F1B's, because a
// round trip to the next stage may take `slack` (F+B) longer. Peak stash of stage s: min((1 +
// slack)(p-1-s) + 1, m). Messages: 2 per link and micro-batch; needs `slack` credits per channel
// (at least 1), since a stage runs that far ahead of the next. Source: the eager 1F1B of JaxPP
// (Xhebraj et al., 2024) and the overlap-friendly schedule of Alpa (Zheng et al., OSDI 2022; Zhuang
// et al., MLSys 2023), which are slack 1. Differs: the slack is a number, and stages may have
// unequal replicas (warmup_depths()).
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::EagerOneFOneB>(const ScheduleShape& shape);

}  // namespace penstock::schedule
