// Raw frames from a file descriptor: standard input, a pipe, a socket or a file. Bytes lie one
// frame after the other, without headers, as ffmpeg writes them with `-f rawvideo`.
//
//   ffmpeg -i street.mp4 -f rawvideo -pix_fmt rgb24 - | penstock stream ...
//
//   RawSource source({.fd = STDIN_FILENO, .name = "standard input", .size = {640, 480, kRgb}});
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/frames/frame_source.h"
#include "penstock/frames/pixel_format.h"

namespace penstock::frames {

struct RawInput {
  int fd = -1;
  bool owns_fd = false;   ///< true: it is closed at the end
  std::string name = {};  ///< for messages
  FrameSize size = {};    ///< `channels` is what the frames shall have
  PixelFormat format = PixelFormat::Rgb24;
  bool repeats = false;  ///< a regular file begins again at its end
};

/// Never reads beyond the frame that was asked for, and never blocks in read(): it waits by poll(),
/// until the deadline. Leaves the descriptor's flags alone, since a shell may share it.
class RawSource : public FrameSource {
 public:
  /// Takes the descriptor over if `owns_fd`, also when it throws: ConfigError for a size that no
  /// frame may have, a descriptor that cannot be read, `repeats` with anything but a file, and
  /// first bytes of a video, an image or an archive (known_files.h); of a pipe, these come with
  /// next().
  explicit RawSource(RawInput input);
  ~RawSource() override;
  RawSource(const RawSource&) = delete;
  RawSource& operator=(const RawSource&) = delete;

  FrameSize size() const override { return input_.size; }
  double frames_per_second() const override { return 0; }
  bool is_live() const override { return !is_file_; }
  std::string describe() const override;
  /// A frame whose first part has come is kept over a stall. `captured_ns` is the time at which its
  /// last byte was read. Throws RuntimeError if reading fails, ConfigError as the constructor.
  Next next(Frame& frame, Deadline deadline) override;
  /// In files.
  int64_t skip(int64_t count) override;
  std::string half_frame() const override;
  /// Bytes at the end that were no whole frame.
  std::string remarks() const override;

 private:
  void check();
  /// Whether there are bytes, or the end, before the deadline.
  bool wait_for_bytes(Deadline deadline) const;
  Next read_raw(Deadline deadline);
  /// Throws ConfigError when the first bytes are those of a video or another known file.
  void check_begin(std::string_view begin) const;
  bool begin_again();
  [[noreturn]] void fail(const char* action, int error) const;

  RawInput input_;
  bool is_file_ = false;
  std::vector<uint8_t> raw_;  ///< one raw frame
  size_t read_bytes_ = 0;     ///< of it that have come
  int64_t frames_ = 0;
  int64_t frames_in_pass_ = 0;  ///< since the file began again
  size_t tail_bytes_ = 0;       ///< at the end, of the frame `tail_frame_`
  int64_t tail_frame_ = 0;
  bool has_ended_ = false;
};

}  // namespace penstock::frames
