// Interleaved 1F1B with the backward split, so that W fills part of the bubble: to interleaved.h
// what zb_h1.h is to 1F1B. 8 stages on 4 workers, 4 micro-batches, F = I = W; f, i and w are the
// second chunk:
//
//   w0  F0 F1 F2 F3 f0 f1 f2 f3  .  .  . i0 w0 i1 w1 i2 w2 i3 w3 I0 W0 I1 W1 I2 W2 I3 W3
//   w1  .  F0 F1 F2 F3 f0 f1 f2 f3 .  i0 .  i1 w0 i2 w1 i3 w2 I0 w3 I1 W0 I2 W1 I3 W2 W3
//   w2  .  .  F0 F1 F2 F3 f0 f1 f2 i0 f3 i1 .  i2 w0 i3 w1 I0 w2 I1 w3 I2 W0 I3 W1 W2 W3
//   w3  .  .  .  F0 F1 F2 F3 f0 i0 f1 i1 f2 i2 f3 i3 w0 I0 w1 I1 w2 I2 w3 I3 W0 W1 W2 W3
//
// The order of `interleaved` with I in place of B; worker r delays W by r of its backwards, of all
// its chunks together. Never slower than `interleaved`, whatever F, I, W and the latency (a test
// compares them). Bubble per mini-batch with the times of one chunk: (p-1)(F + I - min(F,I,W)) at
// most, exactly where W <= F and W <= I, for m = p, p < m < 2p, and where p divides m. Otherwise as
// in `interleaved` up to (v-1)(p-m)(F+B) more for m < p, and (v-1)(p - m mod p)(F+B) for m > 2p.
// Peak stash of worker r: (v-1)p + 2p-1-r chunks, or vm if that is less; with p < m < 2p m takes
// the first p's place. So the first worker keeps what it keeps in `interleaved` and the others up
// to as much. Messages as `interleaved`. Source: ZB-H1's rule (Qi et al., Zero Bubble Pipeline
// Parallelism, ICLR 2024) for Megatron-LM's interleaving (interleaved.h). Differs from
// ScheduleInterleavedZeroBubble of PyTorch 2.13, which runs p-1-r forwards fewer before the first
// backward: vp chunks kept, the same bubble without latency, no slack for any; and any m works.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::InterleavedZb>(const ScheduleShape& shape);

}  // namespace penstock::schedule
