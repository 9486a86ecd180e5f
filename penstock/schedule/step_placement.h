// Puts R, OFFLOAD, LOAD, SYNC, NORM and STEP into a worker's list: the first part of lowering.
//
// A worker with one stage: STEP t comes directly after the worker's last B or W of a mini-batch <=
// t. Why this cannot deadlock in 1F1B: give every action a key: B(b) has key b; F(b) has the key of
// the backward that follows it in the steady pattern, b - (depth - 1) * replicas. From stage to
// stage the keys of one micro-batch's forwards grow, and those of its backwards are equal. So
// running all actions by (key, F before B, last stage first) satisfies every wait, and a barrier at
// key "last micro-batch of t" splits every list exactly at the place above: the lists of one stage
// (SYNC) and those of all stages (NORM). So neither can be part of a cycle of waits, for any
// replica counts and mini-batch sizes. A later place, for instance just before the next backward,
// can deadlock (replicas 1 3 1).
//
// A worker without a backward of a mini-batch <= t stays before that key until the forward directly
// before its first backward, so STEP t goes before that forward; a worker with fewer forwards than
// the warm-up depth has no such forward, and STEP t goes before its first backward. Under flush
// mini-batches do not overlap, and the place is the beginning of the list.
//
// A worker with several stages (flush only) steps all of them after the last B or W of the
// mini-batch, so that every worker has finished computing before it waits, and syncs them in
// ascending order, so that no two workers wait for each other.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::schedule {

/// The compute list of one worker with R before the B or I of stages that recompute (unless the
/// list has it already), OFFLOAD and LOAD of stages that offload, and SYNC (replicated stages),
/// NORM (if the shape has global_norm) and STEP inserted for each mini-batch of the shape. `depths`
/// are the shape's warmup_depths(). O(actions + mini-batches * stages of the worker).
std::vector<Action> place_steps(const std::vector<Action>& compute, const ScheduleShape& shape,
                                const WorkerTable& table, WorkerId worker,
                                const std::vector<int64_t>& depths);

}  // namespace penstock::schedule
