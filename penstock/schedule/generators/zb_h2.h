// ZB-H2: ZB-H1 with about twice as many forwards before the first backward, so that filling the
// pipeline costs nothing either. 4 stages, 8 micro-batches, F = I = W:
//
//   w0  F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7 .  .  .
//   w1  .  F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 F7 I3 W1 I4 W2 I5 W3 I6 W4 I7 W5 W6 W7 .  .
//   w2  .  .  F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 F7 I5 W1 I6 W2 I7 W3 W4 W5 W6 W7 .
//   w3  .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7
//
// Stage s runs 2(p-s)-1 forwards before its first I and delays W by 2s micro-batches. Between its
// own first and last action it idles (p-1-s)(F+I-2W), where W <= F, 2W <= F+I and m >= 2p-1:
// nothing at F = I = W. From the first action anywhere to the last, which counts where the step
// ends with a barrier (a norm of all gradients, a loss that all workers wait for), the bubble is
// (p-1) max(F, F+I-2W, I-F): the same as ZB-H1's at F = I = W. Peak stash min(2p-1, m) on every
// stage. Messages: 2 per link and micro-batch. Source: Qi et al., Zero Bubble Pipeline Parallelism,
// ICLR 2024, table 2. Differs: with m < 2p-1 micro-batches depth and delay lie between ZB-H1's and
// these, in proportion to m - p; then the bubble is max((p-1)F, (p-1)(F+I) - (m-1)W) if W <= F and
// W <= I. Stages may have unequal replicas.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::ZbH2>(const ScheduleShape& shape);

}  // namespace penstock::schedule
