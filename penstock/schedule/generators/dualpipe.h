// DualPipe: two pipelines in opposite directions over the same workers (bidirectional_placement()),
// in whose middle each forward of one direction runs together with a backward of the other
// (Action::with_next), so that one can compute while the messages of the other travel. 4 stages, 8
// micro-batches, F = I = W, B = I + W; even micro-batches run down the workers, odd ones (in lower
// case) up:
//
//   w0  F0 F2 F4 f1 i1 w1 f3 F6 b3--- f5 B0--- b5--- f7 ...B2--- b7--- I4 W4 I6 W6
//   w1  ...F0 f1 F2 f3 F4 b1--- f5 B0--- F6 b3--- f7 B2--- b5--- B4--- i7 I6 w7 W6
//   w2  ...F1 f0 F3 f2 F5 b0--- f4 B1--- F7 b2--- f6 B3--- b4--- B5--- i6 I7 w6 W7
//   w3  F1 F3 F5 f0 i0 w0 f2 F7 b2--- f4 B1--- b4--- f6 ...B3--- b6--- I5 W5 I7 W7
//
// Each half of the workers is one DualPipeV of p/2 workers, whose second stages are on the other
// half. Bubble per mini-batch with F&B for the time of a pair (by default F + B, simulate's
// Costs::overlap): (p/2-1)(F&B + B - 3W), exactly where W <= F = I, F&B = F + B and m is even and
// at least 2p. Peak stash p + 1 on every worker. Messages: 2 per link and micro-batch; what a pair
// receives is there before it begins, what it sends leaves when both have ended. Weights: twice.
// Source: DeepSeek, DualPipe (dualpipe.py), 2025. Differs: any m; the source wants an even one of
// at least 2p. A direction with fewer than p micro-batches has the order of p, without the missing
// ones.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::DualPipe>(const ScheduleShape& shape);

}  // namespace penstock::schedule
