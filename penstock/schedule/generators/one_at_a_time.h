// The strategies whose workers have one micro-batch at a time: forward, then backward. Bubble and
// messages come from what lies between. None keeps more than 1 micro-batch.
//
// Serial: one worker trains the whole model.
//
//   s0  F0 B0 F1 B1 F2 B2 F3 B3
//
// Bubble 0, no messages. The reference that every synchronous schedule must equal.
//
// Data parallelism: one stage, a replica per worker; SYNC before each STEP. 4 replicas and 8
// micro-batches in 1 mini-batch:
//
//   s0  F0 B0 F4 B4
//   s0  F1 B1 F5 B5
//   s0  F2 B2 F6 B6
//   s0  F3 B3 F7 B7
//
// Bubble 0 where the replicas divide the mini-batch. No messages; the gradients are summed once per
// mini-batch. Source: Li et al., "Parameter server", OSDI 2014; Goyal et al. 2017 for the mean over
// the whole mini-batch.
//
// Model parallelism without pipelining: each worker waits for the others. 4 stages, 2
// micro-batches:
//
//   s0  F0 .  .  .  .  .  .  B0 F1 .  .  .  .  .  .  B1
//   s1  .  F0 .  .  .  .  B0 .  .  F1 .  .  .  .  B1 .
//   s2  .  .  F0 .  .  B0 .  .  .  .  F1 .  .  B1 .  .
//   s3  .  .  .  F0 B0 .  .  .  .  .  .  F1 B1 .  .  .
//
// Bubble (p-1)/p of the time on p stages. Messages: 2 per link and micro-batch. Where the input
// stage has r replicas, up to r micro-batches are in flight. Source: the baseline "model
// parallelism" of PipeDream, SOSP 2019, figure 2.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::Serial>(const ScheduleShape& shape);
template <>
WorkerLists generate_compute<Strategy::DataParallel>(const ScheduleShape& shape);
template <>
WorkerLists generate_compute<Strategy::ModelParallel>(const ScheduleShape& shape);

}  // namespace penstock::schedule
