// Delivers the frames of a source that is not live (files, folders, generated frames) at a fixed
// rate, as a camera would: frame k is due at start + k / rate, where `start` is the time of the
// first call of next(). Whoever takes a frame late gets it at once, marked with the time at which
// it was due, so that latencies are those of a camera.
//
//   PacedSource source(open_source("videos/street.avi", {}), 25.0);
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "penstock/frames/frame_source.h"

namespace penstock::frames {

inline constexpr double kMinFramesPerSecond = 0.001;
inline constexpr double kMaxFramesPerSecond = 100000;

class PacedSource : public FrameSource {
 public:
  /// Throws ConfigError for a live source and for a rate outside of
  /// kMinFramesPerSecond..kMaxFramesPerSecond.
  PacedSource(std::unique_ptr<FrameSource> source, double frames_per_second);

  FrameSize size() const override { return source_->size(); }
  double frames_per_second() const override { return frames_per_second_; }
  int num_classes() const override { return source_->num_classes(); }
  std::string describe() const override;
  /// The frame is made before it is due and handed over when it is.
  Next next(Frame& frame, Deadline deadline) override;
  std::string remarks() const override { return source_->remarks(); }

 private:
  int64_t due_ns() const;

  std::unique_ptr<FrameSource> source_;
  double frames_per_second_;
  std::optional<int64_t> start_ns_;
  int64_t delivered_ = 0;
  Frame ahead_;  ///< the next frame, if has_ahead_
  bool has_ahead_ = false;
};

}  // namespace penstock::frames
