// For the tests of frames: sources that do what a test says, and folders that clean up.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/frames/frame_source.h"
#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::frames {

inline Deadline in_ms(int64_t ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}
/// Long enough for anything that should come.
inline Deadline soon() { return in_ms(20000); }

/// The message of the Error that `call` throws; a failure of the test when it throws none or
/// another type.
template <class Error, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

class TestFolder {
 public:
  TestFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::path(testing::TempDir()) /
            fmt::format("penstock-frames-{}-{}", ::getpid(), count++);
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};

/// Frames of one grey pixel, whose value is their number; then what a test says.
class ScriptedSource : public FrameSource {
 public:
  struct Script {
    int64_t frames = 0;
    std::chrono::microseconds pause{0};  ///< before each frame
    std::string error = {};              ///< thrown after the last frame, if not empty
    bool stalls = false;                 ///< after the last frame, instead of ending
    bool is_live = false;
    bool skips = false;           ///< whether skip() leaves frames out
    std::string half_frame = {};  ///< while it stalls
  };
  explicit ScriptedSource(Script script) : script_(std::move(script)) {}

  FrameSize size() const override { return {1, 1, kGrey}; }
  double frames_per_second() const override { return 12.5; }
  bool is_live() const override { return script_.is_live; }
  std::string describe() const override { return "scripted"; }
  Next next(Frame& frame, Deadline deadline) override {
    if (made_ == script_.frames) {
      if (!script_.error.empty()) throw RuntimeError(script_.error);
      if (!script_.stalls) return Next::Ended;
      std::this_thread::sleep_until(deadline);
      return Next::Stalled;
    }
    std::this_thread::sleep_for(script_.pause);
    frame.number = made_++;
    frame.captured_ns = steady_ns();
    frame.size = size();
    frame.pixels.assign(1, static_cast<uint8_t>(frame.number));
    return Next::Ready;
  }
  int64_t skip(int64_t count) override {
    const int64_t skipped = script_.skips ? std::min(count, script_.frames - made_) : 0;
    made_ += skipped;
    return skipped;
  }
  std::string half_frame() const override {
    return made_ == script_.frames ? script_.half_frame : "";
  }
  std::string remarks() const override { return script_.error.empty() ? "" : "a remark"; }

 private:
  Script script_;
  int64_t made_ = 0;
};

}  // namespace penstock::frames
