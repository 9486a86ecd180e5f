// 1F1B with a flush (PipeDream-Flush): the order of 1F1B inside each mini-batch, then the step. 4
// stages, 2 mini-batches of 4 micro-batches:
//
//   s0  F0 F1 F2 F3 .  .  .  B0 .  B1 .  B2 .  B3 F4 F5 F6 F7 .  .  .  B4 .  B5 .  B6 .  B7
//   s1  .  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3 .  .  F4 F5 F6 .  .  B4 F7 B5 .  B6 .  B7 .
//   s2  .  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .  .  .  .  F4 F5 .  B4 F6 B5 F7 B6 .  B7 .  .
//   s3  .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .  .  .  .  .  F4 B4 F5 B5 F6 B6 F7 B7 .  .  .
//
// Bubble (p-1)(F+B) per mini-batch of m micro-batches, a fraction (p-1)/(m+p-1), as GPipe. Peak
// stash min(warmup_depth(s), the worker's micro-batches of a mini-batch): p - s instead of GPipe's
// m. Messages: 2 per link and micro-batch. Source: Narayanan et al., PipeDream-2BW, ICML 2021,
// section 3.2 (PipeDream-Flush).
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::OneFOneBFlush>(const ScheduleShape& shape);
/// The schedule that plans of hybrid parallelism run under (planner/families/hybrid.h).
template <>
WorkerLists generate_compute<Strategy::Hybrid>(const ScheduleShape& shape);

}  // namespace penstock::schedule
