// ZB-V: split backward over two stages per worker in a V (v_placement()): the first worker holds
// the first and the last stage, so the loss is computed where the data came from. 4 stages on 2
// workers, 5 micro-batches, F = I = W; f, i and w are the second stage:
//
//   w0  F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 F4 I1 W1 f3 i3 w3 I2 W2 f4 i4 w4 ...
//   w1  .  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 F4 I2 W2 f4 i3 w3 I3 ...
// and on:
//   w0  ... I3 W3 I4 W4 .
//   w1  ... i4 I4 W3 w4 W4
//
// Bubble from the first action anywhere to the last, with the times of one stage: (p-1) max(I,
// 2(I-W)) where W <= F <= I and m >= 2p-1, half of ZB-H1's; at F = I = W no worker waits between
// its own first and last action. Peak stash min(2p, 2m) stages on every worker, which is p
// micro-batches of both stages: 1F1B's at the first worker. Messages: 2 per link and micro-batch,
// except in the middle of the V, where both stages are on one worker. Source: Qi et al., Pipeline
// Parallelism with Controllable Memory, NeurIPS 2024 (V-ZB). Differs: with m < 2p-1 micro-batches
// the order is greedy, then searched (orders/), at F = I = W, where its bubble is p-1 for m = p (as
// long as 6pm <= 10^6) and at most 2(p-1) above.
#pragma once

#include <span>

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

class ComputeList;

template <>
WorkerLists generate_compute<Strategy::ZbV>(const ScheduleShape& shape);
/// One worker's part of one mini-batch: its local micro-batches [begin, end); fewer than 2p-1 of
/// them in the order of 2p-1. `chunks` are its two stages, `workers` the length of the V.
/// O(actions).
void fill_zb_v(std::span<ComputeList> chunks, int64_t workers, int64_t begin, int64_t end);

}  // namespace penstock::schedule
