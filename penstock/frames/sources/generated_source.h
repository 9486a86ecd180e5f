// A moving scene made from a seed: textured objects of several kinds glide, bounce off the borders,
// rotate slowly and hide each other in front of a textured background, while the light changes.
// Every pixel has a label, and so has the frame. For tests, demonstrations and measurements without
// a camera.
//
//   GeneratedSource source({.size = {160, 120, kRgb}, .seed = 7});
//
// The frames depend on nothing but the options: integer arithmetic, the same bytes on every
// machine.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/frames/frame_source.h"
#include "penstock/frames/sources/generated_scene.h"

namespace penstock::frames {

inline constexpr int kMinGeneratedSide = 8;
inline constexpr int kMaxGeneratedClasses = 25;

struct GeneratedOptions {
  FrameSize size = {160, 120, kRgb};
  uint64_t seed = 1;
  /// Classes of the labels, 2 to kMaxGeneratedClasses: 0 is the background, each other one a kind
  /// of object with its own shape, texture and colour (1 disc, 2 rectangle, 3 bar, 4 triangle,
  /// 5 ring, 6 cross, 7 another disc...).
  int classes = 4;
  /// Frames 0, n, 2n... carry labels; 0: none does.
  int label_every = 1;
  int64_t frames = 0;  ///< after which it ends; 0: never
};

class GeneratedSource : public FrameSource {
 public:
  /// Throws ConfigError for a side below kMinGeneratedSide and for options out of their range.
  /// Draws the background once: 640x480 takes a few ms.
  explicit GeneratedSource(const GeneratedOptions& options);

  FrameSize size() const override { return options_.size; }
  double frames_per_second() const override { return 0; }
  int num_classes() const override { return options_.label_every > 0 ? options_.classes : 0; }
  std::string describe() const override;
  /// Always Ready until the end: the frame is drawn at once. The frame's label is the class of the
  /// object with the most visible pixels, of equal ones the nearest.
  Next next(Frame& frame, Deadline deadline) override;
  int64_t skip(int64_t count) override;

 private:
  GeneratedOptions options_;
  Scene scene_;
  int64_t next_frame_ = 0;
};

}  // namespace penstock::frames
