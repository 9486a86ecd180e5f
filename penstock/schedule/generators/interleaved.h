// Interleaved 1F1B: 1F1B with a flush over v stages (chunks) per worker, assigned round-robin
// (loop_placement()). 8 stages on 4 workers, 4 micro-batches; f and b are the second chunk:
//
//   w0  F0 F1 F2 F3 f0 f1 f2 f3 .  .  .  b0 .  b1 .  b2 .  b3 B0 B1 B2 B3
//   w1  .  F0 F1 F2 F3 f0 f1 f2 f3 .  b0 .  b1 .  b2 .  b3 B0 B1 B2 B3 .
//   w2  .  .  F0 F1 F2 F3 f0 f1 f2 b0 f3 b1 .  b2 .  b3 B0 B1 B2 B3 .  .
//   w3  .  .  .  F0 F1 F2 F3 f0 b0 f1 b1 f2 b2 f3 b3 B0 B1 B2 B3 .  .  .
//
// Micro-batches go in groups of p through chunk 0, 1, ... v-1, backwards in the opposite order;
// worker r runs 2(p-1-r) + (v-1)p forwards before it alternates forward and backward. Bubble
// (p-1)(F+B) per mini-batch with the times of one chunk: 1/v of 1F1B's. Peak stash of worker r:
// (v-1)p + 2(p-1-r) + 1 chunks. Messages: 2 per link and micro-batch, v times as many as 1F1B, also
// from the last worker to the first. Any m works. With p < m < 2p there is one group of m: the same
// bubble, a stash of (v-1)m + 2(p-1-r) + 1 chunks, or all vm if that is less. With m < p there is
// one group as well: (v-1)(p-m)(F+B) more. Otherwise the last group lacks p - m mod p
// micro-batches, whose places stay empty: at most (v-1)(p - m mod p) (F+B) more. Larger groups
// would avoid that, but messages from the last worker to the first would wait for their turn, and
// so need more than one credit. Source: Narayanan et al., Efficient Large-Scale Language Model
// Training on GPU Clusters, SC 2021, section 2.2. Differs: Megatron-LM wants m to be a multiple of
// p.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::Interleaved>(const ScheduleShape& shape);
/// The same order; `split`: with I in place of B, and the W of worker r's n-th backward behind its
/// (n + r)-th.
WorkerLists interleaved_lists(const ScheduleShape& shape, bool split);

}  // namespace penstock::schedule
