// ZB-H1: 1F1B with the backward split, so that the weights' gradients (W), which no other worker
// waits for, fill part of the bubble. 4 stages, 8 micro-batches, F = I = W:
//
//   w0  F0 F1 F2 F3 .  .  .  I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7
//   w1  .  F0 F1 F2 .  .  I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7
//   w2  .  .  F0 F1 .  I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7
//   w3  .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7
//
// The order of 1F1B with I in place of B; stage s delays W by s micro-batches, so that no stage
// keeps more than stage 0 does in 1F1B. Bubble (p-1)(F+I) - (min(m,p)-1) min(F,I,W) per mini-batch:
// (p-1)(F+I-W) where W is the shortest and m >= p, a fraction (p-1)/(3m+p-1) at F = I = W. Peak
// stash min(p, m) on every stage. Messages: 2 per link and micro-batch. Source: Qi et al., Zero
// Bubble Pipeline Parallelism, ICLR 2024, table 2. Differs: stages may have unequal replicas; then
// W is delayed by d of the worker's own micro-batches, where d is 1F1B's depth at stage 0 minus
// 1F1B's depth at this stage.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::ZbH1>(const ScheduleShape& shape);

}  // namespace penstock::schedule
