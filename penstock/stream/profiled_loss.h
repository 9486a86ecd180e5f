// What the last stage of a stream computes in addition to its layers, for a profile of single
// frames.
//
//   auto loss = profiled_loss(frames::Task::Pixels, {.channels = 3, .classes = 4}, {160, 120, 3},
//   1); profile::Profile profile = model::measure_profile(model, {.batch_size = 1}, loss);
#pragma once

#include <cstdint>

#include "penstock/frames/frame.h"
#include "penstock/frames/task.h"
#include "penstock/model/profiler.h"

namespace penstock::stream {

/// The loss of FrameLoss, with random targets of the kind that FrameFeed makes of a frame with
/// labels: every pixel has one.
model::ProfiledLoss profiled_loss(frames::Task task, const frames::FrameKind& kind,
                                  frames::FrameSize size, uint64_t seed);

}  // namespace penstock::stream
