// Delivers the frames of a source that is not live (files, folders, generated frames) at a fixed
// rate, as a camera would: frame k is due at start + k / rate, where `start` is the time of the
// first call of next(). Whoever takes a frame late gets it at once, marked with the time at which
// it was due, so that latencies are those of a camera. A source that needs longer for a frame than
// the rate allows would fall behind without end; LateFrames says what becomes of its late frames.
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

enum class LateFrames : uint8_t {
  Deliver,  ///< all of them, however late: nothing is lost, and lateness has no bound
  /// Frames whose time has passed by more than two periods and a millisecond are left out, as by a
  /// camera that is read too rarely. Where the source cannot leave frames out (skip()), the later
  /// ones are due later instead.
  LeaveOut,
};

class PacedSource : public FrameSource {
 public:
  /// Throws ConfigError for a live source and for a rate outside of
  /// kMinFramesPerSecond..kMaxFramesPerSecond.
  PacedSource(std::unique_ptr<FrameSource> source, double frames_per_second,
              LateFrames late = LateFrames::Deliver);

  FrameSize size() const override { return source_->size(); }
  double frames_per_second() const override { return frames_per_second_; }
  int num_classes() const override { return source_->num_classes(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  bool labels_frames() const override { return source_->labels_frames(); }
  std::string describe() const override;
  /// The frame is made before it is due and handed over when it is.
  Next next(Frame& frame, Deadline deadline) override;
  int64_t skip(int64_t count) override { return source_->skip(count); }
  SourceCounts counts() const override;
  std::string half_frame() const override { return source_->half_frame(); }
  /// Those of the source, and the rate that was reached if frames were late.
  std::string remarks() const override;

 private:
  int64_t due_ns() const;
  /// LateFrames::LeaveOut.
  void catch_up();

  std::unique_ptr<FrameSource> source_;
  double frames_per_second_;
  LateFrames late_;
  std::optional<int64_t> start_ns_;  ///< moved where the source cannot leave frames out
  int64_t next_ = 0;                 ///< of the rate's frames
  int64_t skipped_ = 0;
  bool is_slow_ = false;
  int64_t delivered_ = 0;
  int64_t first_ns_ = 0;  ///< when the first frame was delivered
  int64_t newest_ns_ = 0;
  Frame ahead_;  ///< the next frame, if has_ahead_
  bool has_ahead_ = false;
};

}  // namespace penstock::frames
