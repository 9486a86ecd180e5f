// For tests: the module with OpenCV, images and videos; all missing in a build without OpenCV.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "penstock/frames/opencv/opencv_interface.h"

namespace penstock::frames {

/// This program is <build>/lib/frames/frames_test; frames_test_media lies beside it.
inline std::filesystem::path test_program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}
inline const std::filesystem::path kTestModule =
    test_program_folder().parent_path().parent_path() / kOpencvModule;

inline bool has_opencv() { return std::filesystem::exists(kTestModule); }

/// Runs frames_test_media with these arguments.
template <class... Arguments>
void write_media(const char* kind, const std::filesystem::path& file, Arguments... arguments) {
  std::string command = fmt::format(
      "'{}' {} '{}'", (test_program_folder() / "frames_test_media").string(), kind, file.string());
  ((command += fmt::format(" {}", arguments)), ...);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace penstock::frames

#define SKIP_WITHOUT_OPENCV() \
  if (!::penstock::frames::has_opencv()) GTEST_SKIP() << "this build is without OpenCV"
