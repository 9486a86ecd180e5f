// A camera, a video file or a stream by URL (rtsp://, http://...), through OpenCV. Cameras are
// those of Video4Linux; files and streams are read by ffmpeg.
//
//   VideoSource source({.camera = 0});
//   VideoSource source({.name = "rtsp://192.168.1.20/street"});
//
// Loads OpenCV (opencv/opencv_loader.h). A thread of its own makes the calls that may block
// (sources/video_reader.h).
#pragma once

#include <filesystem>
#include <string>

#include "penstock/frames/frame_source.h"
#include "penstock/frames/sources/video_reader.h"

namespace penstock::frames {

class VideoSource : public FrameSource {
 public:
  /// Opens it and reads the first frame, within `open_timeout` each. Throws ConfigError when there
  /// is no such camera or video, when it cannot be decoded, for a size that no frame may have, and
  /// when OpenCV is missing; TimeoutError when nothing comes.
  explicit VideoSource(const VideoRequest& request,
                       const std::filesystem::path& opencv_module = {});

  FrameSize size() const override { return size_; }
  double frames_per_second() const override { return frames_per_second_; }
  bool is_live() const override { return is_live_; }
  std::string describe() const override;
  /// A frame of another size than the first one is resized and counted. Frames come from ffmpeg as
  /// fast as they are taken unless the source is live. Throws TransportError when a camera or a
  /// stream delivers nothing for `read_timeout`, RuntimeError when decoding fails.
  Next next(Frame& frame, Deadline deadline) override;
  SourceCounts counts() const override;
  /// The frames that are missing or broken, and those that were resized.
  std::string remarks() const override;

 private:
  std::string name_;
  bool is_live_;
  VideoRequest request_;
  VideoReader reader_;
  FrameSize size_;
  FrameSize first_size_;  ///< of the first picture, before it was resized
  double frames_per_second_ = 0;
  VideoAnswer answer_;
  bool has_first_ = false;  ///< answer_ is the next frame
  bool has_ended_ = false;
  int64_t frames_ = 0;
  int64_t changed_ = 0;  ///< frames of another size
  FrameSize changed_size_;
};

}  // namespace penstock::frames
