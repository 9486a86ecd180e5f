// Data parallelism: one stage, a replica per worker; SYNC before each STEP. Drawn for 4 replicas
// and 8 micro-batches in 1 mini-batch:
//
//   s0  F0 B0 F4 B4
//   s0  F1 B1 F5 B5
//   s0  F2 B2 F6 B6
//   s0  F3 B3 F7 B7
//
// Bubble 0 where the replicas divide the mini-batch. Peak stash 1 micro-batch. No messages; the
// gradients are summed once per mini-batch. Source: Li et al., "Parameter server", OSDI 2014; Goyal
// et al. 2017 for the mean over the whole mini-batch.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::DataParallel>(const ScheduleShape& shape);

}  // namespace penstock::schedule
