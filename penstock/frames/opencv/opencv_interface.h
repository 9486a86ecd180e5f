// What penstock-opencv.so offers to the program that loads it: images and cameras by OpenCV, video
// files and streams by the libraries of ffmpeg. Plain functions, no exceptions, none of their
// types. Both are built together; `version` guards against others. Internal to frames.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace penstock::frames {

inline constexpr const char* kOpencvModule = "penstock-opencv.so";
inline constexpr const char* kOpencvEntry = "penstock_opencv";
inline constexpr int kOpencvVersion = 3;

/// A decoded picture of any size; its memory is used again for the next one.
struct OpencvPicture;
/// An open camera, file or stream.
struct OpencvVideo;

struct OpencvError {
  std::array<char, 256> text{};  ///< ends with a zero
};

struct OpencvVideoRequest {
  const char* name = nullptr;  ///< a file or URL; null: a camera
  int camera = 0;
  int width = 0;  ///< what a camera is asked for, if not 0; it may deliver another size
  int height = 0;
  int open_timeout_ms = 0;  ///< files and streams only
  int read_timeout_ms = 0;
  /// Set by any thread: opening and reading a file or stream returns at once. Outlives the video.
  const std::atomic<bool>* is_cancelled = nullptr;
};

enum class OpencvRead : uint8_t {
  Picture,
  Ended,    ///< of a file; or a server has closed the stream
  Nothing,  ///< none came in time, or it was cancelled
  Failed,   ///< with an error
};

/// Functions that can fail write why into `error`. Pictures and videos may be used by any thread,
/// one at a time.
struct OpencvInterface {
  int version;

  /// Null if there is no memory.
  OpencvPicture* (*make_picture)();
  void (*free_picture)(OpencvPicture* picture);
  void (*picture_size)(const OpencvPicture* picture, int* width, int* height);
  /// Writes [height, width, channels] to `out`, resized. The channels are those that it was decoded
  /// with.
  bool (*copy_picture)(const OpencvPicture* picture, int width, int height, uint8_t* out,
                       OpencvError* error);

  /// An image file's content. `channels`: kGrey or kRgb. `turns`: as its camera was held (EXIF).
  bool (*decode)(const uint8_t* bytes, int64_t count, int channels, bool turns,
                 OpencvPicture* picture, OpencvError* error);

  /// Null with an error. Blocks for the timeout at most, longer only if a driver hangs.
  OpencvVideo* (*open_video)(const OpencvVideoRequest* request, OpencvError* error);
  void (*close_video)(OpencvVideo* video);
  /// What the file or device says; 0 if nothing.
  double (*frames_per_second)(OpencvVideo* video);
  /// Frames that the file says it has (0: it does not say), and packets so far that could not be
  /// decoded.
  void (*counts)(OpencvVideo* video, int64_t* announced, int64_t* broken);
  OpencvRead (*read_video)(OpencvVideo* video, int channels, OpencvPicture* picture,
                           OpencvError* error);
};

/// Exported by the module under the name kOpencvEntry.
using OpencvEntry = const OpencvInterface* (*)();

}  // namespace penstock::frames
