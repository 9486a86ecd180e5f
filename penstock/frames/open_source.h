// Sources by their text forms, as users write them.
//
//   generated             a moving scene made from a seed
//   -                     raw frames on standard input; needs a size and a pixel format
//   camera:0              a camera
//   FOLDER                its images
//   FILE                  a video; with a pixel format, raw frames (also from a named pipe)
//   rtsp://..., http://.. a stream
//
//   open_source("generated", {.width = 320, .height = 240, .frames_per_second = 30});
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/frames/frame_source.h"
#include "penstock/frames/paced_source.h"
#include "penstock/frames/pixel_format.h"

namespace penstock::frames {

/// An option that the source has no use for is an error, so that none is lost in silence.
struct SourceOptions {
  /// Of the frames. Raw frames need it; generated ones have 160x120 without it; images and videos
  /// are resized to it, or have the size of their first one. 0: not given.
  int width = 0;
  int height = 0;
  int channels = 0;  ///< kGrey or kRgb; 0: grey for raw `gray`, else RGB
  /// Delivers files, folders and generated frames at this rate; 0: as fast as they are taken.
  double frames_per_second = 0;
  LateFrames late = LateFrames::Deliver;  ///< with a rate: where the source does not keep it
  std::optional<PixelFormat> pixel = {};  ///< raw frames only
  /// Images, video files and raw files begin again at their end.
  bool repeats = false;
  bool skips_broken = true;  ///< images: false: one that cannot be decoded is an error

  /// Of the generated scene (sources/generated_source.h).
  std::optional<uint64_t> seed = {};
  std::optional<int> classes = {};
  std::optional<int> label_every = {};
  std::optional<int64_t> frames = {};

  std::chrono::milliseconds open_timeout{10'000};  ///< cameras and videos: for the first frame
  std::chrono::milliseconds read_timeout{30'000};  ///< cameras and streams: for each frame
  /// The module with OpenCV; empty: penstock-opencv.so beside the program.
  std::filesystem::path opencv_module = {};
};

/// Opens the source, and waits for the first frame of images, cameras and videos. Throws
/// ConfigError naming `spec` for what does not exist, cannot be read, or does not go with the
/// options; ParseError for images that cannot be decoded; TimeoutError when nothing comes.
std::unique_ptr<FrameSource> open_source(std::string_view spec, const SourceOptions& options);

}  // namespace penstock::frames
