// Chimera: two pipelines in opposite directions over the same workers (bidirectional_placement()),
// so that each fills the other's bubble. Even micro-batches run down the workers, odd ones up;
// every worker holds two stages, every stage two replicas whose gradients are summed before the
// step. 4 stages, 4 micro-batches, F = B; f and b run up:
//
//   w0  F0 F2 .  f1 b1 f3 b3 B0 .  B2
//   w1  .  F0 f1 F2 f3 b1 B0 b3 B2 .
//   w2  .  f1 F0 f3 F2 B0 b1 B2 b3 .
//   w3  f1 f3 .  F0 B0 F2 B2 b1 .  b3
//
// Bubble at F = B: (2(p-1) - k) F, where k is the number of micro-batches in the last round of p,
// one less if that is odd; (p-2) F where p divides m. Where F and B differ and m <= p: (p-2)(F+B) -
// (m-2) min(F,B) for even m, (p-1)(F+B) - (m-1) min(F,B) for odd m; (p-2) max(F,B) at m = p. Peak
// stash min(p, m) at most on every worker. Messages: 2 per link and micro-batch. Weights: twice.
// Source: Li and Hoefler, Chimera, SC 2021, section 3. Differs: for m > p the paper concatenates
// rounds of p (or doubles forwards); here one rule orders everything: in equal slots, each worker
// runs what is ready (backwards first, then the oldest), which leaves no bubble between rounds at F
// = B. m may be odd. The number of stages is even.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::Chimera>(const ScheduleShape& shape);

}  // namespace penstock::schedule
