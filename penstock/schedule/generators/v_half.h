// V-Half: split backward over two stages per worker in a V (v_placement()), with about half of the
// activations that 1F1B's first worker keeps where workers are many: 17 of 32, 5 of 8, 3 of 4, 2 of
// 2, and about half of its idle time. 4 stages on 2 workers, 5 micro-batches, F = I = W; f, i and w
// are the second stage:
//
//   w0  F0 F1 .  f0 i0 F2 w0 f1 i1 w1 I0 F3 W0 f2 i2 w2 I1 F4 W1 f3 i3 w3 I2 W2 .  f4 i4 ...
//   w1  .  F0 f0 F1 .  i0 f1 w0 F2 I0 i1 W0 f2 w1 F3 I1 i2 W1 f3 w2 F4 I2 i3 W2 f4 I3 w3 ...
// and on:
//   w0  ... I3 w4 I4 W3 W4
//   w1  ... i4 I4 W3 w4 W4
//
// A repeated block (v_block.h): passes follow each other by two slots down the V and by one up.
// Bubble from the first action anywhere to the last, with the times of one stage, where W <= F <=
// I, 2I <= W + 2F and m > p/2: (p-1)(F+3I) - pW for odd p, pF + (3p-4)I - (p+1)W for even p from 4
// on, 2(F+I-W) for p = 2. At F = I = W these are (3p-4) F and (3p-5) F, against 6(p-1) F in 1F1B
// with both stages of a worker as one. Where F > I or 2I > W + 2F every micro-batch waits a little,
// so that the idle time grows with m. Peak stash min(2 floor(p/2 + 1), 2m) stages on the busiest
// worker, which is floor(p/2 + 1) micro-batches of both stages where 1F1B keeps p. Messages as
// ZB-V. Source: Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024 (V-Half).
// Differs: v_block.h; the rests at the turns.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::VHalf>(const ScheduleShape& shape);

}  // namespace penstock::schedule
