// Loads penstock-opencv.so when images or a video are asked for: nothing else pays for OpenCV and
// ffmpeg and the many libraries behind them. Internal to frames.
//
//   const OpencvInterface& opencv = load_opencv(opencv_module_beside_program());
//   const PictureHandle picture = make_picture(opencv);
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "penstock/frames/opencv/opencv_interface.h"

namespace penstock::frames {

/// The module's file beside the running program.
std::filesystem::path opencv_module_beside_program();

/// An empty path means opencv_module_beside_program(). The module stays loaded until the process
/// ends. Throws ConfigError when it is missing (the program was built without OpenCV), when the
/// libraries that it needs are not installed, and when it is of another version.
///
/// Before it is loaded the first time, environment variables are set that keep OpenCV quiet and
/// bound the size of images, where they are not set: getenv() in another thread must not run at
/// that time.
const OpencvInterface& load_opencv(const std::filesystem::path& module);

using PictureHandle = std::unique_ptr<OpencvPicture, void (*)(OpencvPicture*)>;
/// Throws RuntimeError if there is no memory.
PictureHandle make_picture(const OpencvInterface& opencv);

using VideoHandle = std::unique_ptr<OpencvVideo, void (*)(OpencvVideo*)>;

/// The text, safe to print.
std::string text_of(const OpencvError& error);

}  // namespace penstock::frames
