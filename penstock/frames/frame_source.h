// Where frames come from. A source delivers its frames in order, one per call of next(). It is used
// by one thread at a time; FrameQueue gives it one of its own.
//
//   const std::unique_ptr<FrameSource> source = open_source("generated", {});
//   Frame frame;
//   while (source->next(frame, steady_clock::now() + 1s) == Next::Ready) learn(frame);
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/frames/frame.h"

namespace penstock::frames {

/// What came of waiting for a frame.
enum class Next : uint8_t {
  Ready,    ///< the frame is there
  Ended,    ///< there are no more; so will be all later calls
  Stalled,  ///< none came until the deadline; a later call may bring one
};

using Deadline = std::chrono::steady_clock::time_point;

/// Frames that a source did not deliver, and how many it should have.
struct SourceCounts {
  int64_t announced = 0;  ///< that a file or folder says it has; 0: not known
  int64_t broken = 0;     ///< that could not be decoded and were left out
  int64_t skipped = 0;    ///< that were left out because they were late

  bool operator==(const SourceCounts&) const = default;
};

class FrameSource {
 public:
  virtual ~FrameSource() = default;

  /// Of every frame; known when the source is open.
  virtual FrameSize size() const = 0;
  /// The rate at which frames come or were recorded; 0: unknown, they come when they come.
  virtual double frames_per_second() const = 0;
  /// Classes of the labels, the background (0) among them. 0: no frame carries labels.
  virtual int num_classes() const { return 0; }
  /// Of the classes, where they have names; empty: their numbers stand for them.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Whether labels are those of whole frames (Frame::label) alone, not of pixels.
  virtual bool labels_frames() const { return false; }
  /// True if frames come by themselves at their own rate (cameras, streams, pipes), so that it can
  /// be paced by nobody else.
  virtual bool is_live() const { return false; }
  /// One line for people: "camera:0, 640x480 RGB, 30 frames/s".
  virtual std::string describe() const = 0;

  /// Waits for the next frame, until `deadline` at most; a deadline in the past takes only what is
  /// there already. Reuses the memory of `frame`; its content is unspecified unless the answer is
  /// Ready. Throws a penstock::Error when the source is broken.
  virtual Next next(Frame& frame, Deadline deadline) = 0;

  /// Leaves out the next `count` frames without making them. Returns how many: fewer at the end,
  /// and 0 where that takes as long as making them (cameras, videos, pipes).
  virtual int64_t skip(int64_t /*count*/) { return 0; }

  virtual SourceCounts counts() const { return {}; }
  /// What has come of the next frame, while the rest is missing: "77 of 9216 bytes of frame 5 have
  /// come". Empty if nothing has, or the source does not know.
  virtual std::string half_frame() const { return {}; }

  /// What was unusual so far, in sentences for people: bytes that were left at the end, files that
  /// were skipped, sizes that changed. Empty if nothing was.
  virtual std::string remarks() const { return {}; }
};

}  // namespace penstock::frames
