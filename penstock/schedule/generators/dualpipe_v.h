// DualPipeV: DualPipe cut in half. Two stages per worker in a V (v_placement()); in the middle each
// forward of one stage is next to a backward of the other stage, so that one can compute while the
// messages of the other travel. 4 stages on 2 workers, 6 micro-batches, F = I = W, B = I + W; f, b,
// i and w are the second stage:
//
//   w0  F0 F1 F2 f0 i0 w0 f1 F3 b1 -  f2 B0 -  F4 b2 -  f3 B1 -  F5 b3 -  f4 B2 -  b4 ...
//   w1  .  F0 f0 F1 f1 F2 b0 -  f2 B0 -  F3 b1 -  f3 B1 -  F4 b2 -  f4 B2 -  F5 b3 - ...
// and on:
//   w0  ... -  f5 .  B3 -  b5 -  I4 W4 I5 W5
//   w1  ... f5 B3 -  b4 -  B4 -  i5 I5 w5 W5
//
// Backwards are not split except at the ends, where I alone lets the next worker start and W fills
// the waiting time. Bubble per mini-batch with the times of one stage, without any overlap of a
// forward with a backward: (p-1) max(F+I-W, 2(F-W)) where W <= I <= F and m >= 2p. Peak stash 2p +
// 1 stages on every worker. Messages as ZB-V. Source: DeepSeek, DualPipe (dualpipev.py), 2025,
// after Sea AI Lab's "cut-in-half". Differs: the source overlaps the F and B of a pair; here one
// runs after the other. With m < 2p micro-batches, which the source refuses, the order is ZB-V's.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

class ComputeList;

template <>
WorkerLists generate_compute<Strategy::DualPipeV>(const ScheduleShape& shape);

/// A stage's micro-batches of a mini-batch, counted locally.
struct LocalRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};
/// One worker's part of one mini-batch: stages r and 2p-1-r of a V of p `workers`, or of two
/// pipelines of 2p stages in opposite directions. `overlaps`: F and B of a pair run together. Fewer
/// than 2p micro-batches of a direction come in the order of 2p, without those that are missing.
/// O(actions).
void fill_dualpipe(std::span<ComputeList> chunks, int64_t workers,
                   const std::array<LocalRange, 2>& ranges, bool overlaps);

}  // namespace penstock::schedule
