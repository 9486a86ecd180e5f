// Model parallelism without pipelining: one micro-batch in flight at a time; each worker waits for
// the others. 4 stages, 2 micro-batches:
//
//   s0  F0 .  .  .  .  .  .  B0 F1 .  .  .  .  .  .  B1
//   s1  .  F0 .  .  .  .  B0 .  .  F1 .  .  .  .  B1 .
//   s2  .  .  F0 .  .  B0 .  .  .  .  F1 .  .  B1 .  .
//   s3  .  .  .  F0 B0 .  .  .  .  .  .  F1 B1 .  .  .
//
// Bubble (p-1)/p of the time on p stages. Peak stash 1 micro-batch per worker. Messages: 2 per link
// and micro-batch. Where the input stage has r replicas, up to r micro-batches are in flight.
// Source: the baseline "model parallelism" of PipeDream, SOSP 2019, figure 2.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::ModelParallel>(const ScheduleShape& shape);

}  // namespace penstock::schedule
