// Learning online from a stream: in every tick each stage works on another frame, one forward and
// one backward, and what it makes reaches its neighbours in the next tick. 4 stages, 9 frames:
//
//   s0  F0 F1 F2 F3 F4 F5 F6 .  .  .  B0 F7 B1 F8 B2 .  B3 .  B4 .  B5 .  B6 .  B7 .  B8
//   s1  .  F0 F1 F2 F3 F4 .  .  .  B0 F5 B1 F6 B2 F7 B3 F8 B4 .  B5 .  B6 .  B7 .  B8 .
//   s2  .  .  F0 F1 F2 .  .  B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 F8 B6 .  B7 .  B8 .  .  .
//   s3  .  .  .  F0 .  .  B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 F8 B8 .  .  .  .
//
// Bubble 0 while the stream lasts, (p-1)(F+B) once at its ends; a frame per tick, whatever the
// number of stages. The gradient that stage s of S uses is 2(S-1-s) frames older than the frame
// that it has just seen. Under the policy `current` the backward pass goes through that newest
// frame, so a stage keeps one frame; under `latest` and `stash` it goes through the activations of
// the gradient's own frame, of which the stage keeps 2(S-1-s) + 1. Messages: 2 per link and frame.
// Replicas take turns, as in 1F1B-RR. A stream has no last frame: LazySchedule makes the lists as
// they are read. Source: PARTIME (Meloni et al., ICMLA 2022), whose buffers make the same delays.
// Differs: when the stream ends the gradients that are under way still arrive; under `current` they
// go through the last frame.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::Online>(const ScheduleShape& shape);

}  // namespace penstock::schedule
