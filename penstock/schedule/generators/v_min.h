// V-Min: split backward over two stages per worker in a V (v_placement()), with the minimum of
// activations that a V allows: about a third of what 1F1B's first worker keeps if there are many
// workers (12 of 32, 4 of 8, 2 of 4, 2 of 2). 4 stages on 2 workers, 5 micro-batches, F = I = W; f,
// i and w are the second stage:
//
//   w0  F0 .  .  f0 i0 F1 w0 I0 W0 f1 i1 F2 w1 I1 W1 f2 i2 F3 w2 I2 W2 f3 i3 F4 w3 I3 W3 ...
//   w1  .  F0 f0 .  .  i0 I0 F1 f1 w0 W0 i1 I1 F2 f2 w1 W1 i2 I2 F3 f3 w2 W2 i3 I3 F4 f4 ...
// and on:
//   w0  ... f4 i4 w4 .  I4 W4
//   w1  ... w3 W3 i4 I4 w4 W4
//
// A repeated block (v_block.h, which draws it): a micro-batch passes the V twice without a rest, so
// its activations are kept for the shortest possible time. Bubble at F = I = W from the first
// action anywhere to the last: (4p-5) F with the time of one stage, for any m, against 6(p-1) F in
// 1F1B with both stages as one. Where F, I and W differ and 2 max(F, I) <= W + min(F, I), the
// bubble does not depend on m; otherwise every micro-batch waits, and the idle time grows with m.
// Peak stash min(2 floor((p+4)/3), 2m) stages on the busiest worker, which is about p/3 + 1
// micro-batches of both stages where 1F1B keeps p. Messages as ZB-V. Source: Qi et al., Pipeline
// Parallelism with Controllable Memory, NeurIPS 2024 (V-Min). Differs: v_block.h; where 3 divides
// p, two passes would fall into the same slot, so each micro-batch rests two slots at the bottom of
// the V.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::VMin>(const ScheduleShape& shape);

}  // namespace penstock::schedule
