// Where SYNC and STEP stand in a worker's list: the first part of lowering.
//
// STEP t stands right after the worker's last backward of a mini-batch <= t. In 1F1B give every action a key: B(b) has key b; F(b) has the
// key of the backward that follows it in the steady pattern, b - (depth - 1) * replicas. Along the stages the keys of one micro-batch's
// forwards grow and those of its backwards are equal, so running all actions by (key, F before B, last stage first) meets every wait, and a
// barrier at key "last micro-batch of t" splits every list of the stage exactly at the place above. So no SYNC can be part of a cycle of
// waits, whatever the replica counts and mini-batch sizes. A later place, for instance just before the next backward, can deadlock
// (replicas 1 3 1).
//
// A worker without a backward of a mini-batch <= t stands before that key until the forward that its first backward follows directly, so
// STEP t goes before that forward; a worker with fewer forwards than the warm-up depth has no such forward, and STEP t goes before its
// first backward. Under flush mini-batches do not overlap, and the place is the beginning of the list.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

/// The compute list of one worker with SYNC (if `sync`) and STEP inserted for each mini-batch of the shape. `depth` is the
/// stage's warmup_depth(). O(actions + mini-batches).
std::vector<Action> place_steps(const std::vector<Action>& compute, const ScheduleShape& shape, StageId stage, int64_t depth, bool sync);

}  // namespace penstock::schedule
