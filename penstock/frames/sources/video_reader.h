// A thread that makes the module's calls for VideoSource, because these may block for seconds when
// a camera or a server delivers nothing. It reads one picture when it is asked to, never ahead.
// Internal to sources.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "penstock/frames/frame_source.h"
#include "penstock/frames/opencv/opencv_interface.h"

namespace penstock::frames {

struct VideoRequest {
  std::string name = {};  ///< a file or URL; empty: a camera
  int camera = 0;
  int width = 0;  ///< 0: that of the first picture
  int height = 0;
  int channels = kRgb;
  bool repeats = false;
  std::chrono::milliseconds open_timeout{10'000};
  std::chrono::milliseconds read_timeout{30'000};
};

/// A picture, or why there is none.
struct VideoAnswer {
  enum class Kind : uint8_t {
    Picture,
    Ended,      ///< a file ended, or a server closed the stream
    NoneCame,   ///< nothing for `read_timeout`, or a camera that is gone
    NotOpened,  ///< with an error
    Failed,     ///< with an error
  };
  Kind kind = Kind::Ended;
  std::string error;
  int64_t came_ns = 0;  ///< a time of the steady clock
  FrameSize own_size;   ///< before it was resized
  FrameSize size;
  std::vector<uint8_t> pixels;
  double frames_per_second = 0;
  int64_t announced = 0;  ///< frames that the file says it has; 0: it does not say
  int64_t broken = 0;     ///< that could not be decoded so far
  /// Those of the file from its beginning to its end, when it has ended for the first time.
  std::optional<int64_t> decoded = {};
};

class VideoReader {
 public:
  VideoReader(const OpencvInterface& opencv, VideoRequest request);
  /// Cancels what is under way. Files and streams end at once; a camera that delivers nothing may
  /// block its thread for some seconds in its driver. The thread that still blocks after kGoodbye
  /// is left behind: it owns what it uses, and ends with its call or with the process.
  ~VideoReader();
  VideoReader(const VideoReader&) = delete;
  VideoReader& operator=(const VideoReader&) = delete;

  /// Asks for a picture, unless one is asked for already, and waits for it until the deadline.
  /// False: not yet. `answer.pixels` is exchanged for the new pixels, so that memory is reused.
  bool read(VideoAnswer& answer, Deadline deadline);

 private:
  static constexpr std::chrono::seconds kGoodbye{2};

  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace penstock::frames
