// What v-half and v-min share: schedules that repeat one block of actions every six slots. Internal
// to the generators.
//
// Two stages per worker in a V, split backward, all passes one slot long: a worker needs six slots
// per micro-batch, so micro-batch b does everything 6 b slots after micro-batch 0. The block says
// when micro-batch 0 does it: its forwards follow each other by `down` slots on the way down the V
// and by `up` slots on the way back, its backwards likewise, and it waits (rests) at the turns. How
// long a micro-batch stays on a worker, divided by six, is how many of them the worker keeps. The
// rests are chosen so that no worker has two actions in the same slot of the six; two slots stay
// free for W.
//
//   block of v-min, 4 workers; f and i are the second stage
//   w0  F0 .  .  .  .  .  .  f0 i0 .  .  .  .  .  .  I0
//   w1  .  F0 .  .  .  .  f0 .  .  i0 .  .  .  .  I0 .
//   w2  .  .  F0 .  .  f0 .  .  .  .  i0 .  .  I0 .  .
//   w3  .  .  .  F0 f0 .  .  .  .  .  .  i0 I0 .  .  .
//
// Only the order of F and I is taken from the repeated block. Then the lists are run in slots: a
// worker does the next of its F and I if it can, and otherwise the W that has waited longest; where
// it already keeps `most_kept`, W goes before the next F. So the slots that the block leaves empty
// at the beginning and at the end cost less time than in the block, and no extra memory.
//
// Source: Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 3:
// building blocks, with their lifespan as the measure of memory. Differs: the paper squeezes and
// reorders the repeated block by hand; here one rule orders W and fills the beginning and the end.
#pragma once

#include <cstdint>

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

struct VBlock {
  int64_t down = 1;         ///< slots from one F (or i) to that of the next worker down the V
  int64_t up = 1;           ///< from one f (or I) to that of the next worker up
  int64_t bottom_rest = 0;  ///< slots between F and f on the last worker
  int64_t top_rest = 0;     ///< between f and i on the first one
  int64_t last_rest = 0;    ///< between i and I on the last one
  int64_t most_kept = 0;    ///< stages of micro-batches that a worker may keep at once
};

/// All copies and mini-batches of the shape, each by the block. O(actions).
WorkerLists repeat_block(const ScheduleShape& shape, const VBlock& block);

}  // namespace penstock::schedule
