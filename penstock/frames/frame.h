// One picture of a stream with its labels, and sizes of pictures. Plain values.
//
//   const FrameSize size = parse_frame_size("640x480", kRgb);
//   Frame frame;
//   frame.pixels.resize(static_cast<size_t>(frame_bytes(size)));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::frames {

inline constexpr int kGrey = 1;  ///< channels
inline constexpr int kRgb = 3;   ///< channels, in this order

/// The largest width or height of a frame.
inline constexpr int kMaxFrameSide = 16384;
/// The largest frame, in bytes of its pixels.
inline constexpr int64_t kMaxFrameBytes = int64_t{256} << 20;

struct FrameSize {
  int width = 0;
  int height = 0;
  int channels = kRgb;  ///< kGrey or kRgb

  bool operator==(const FrameSize&) const = default;
};

/// In Frame::pixel_labels: the class of this pixel is not known.
inline constexpr uint8_t kUnlabelled = 255;

struct Frame {
  /// From 0, counted by the source. Gaps are frames that were dropped.
  int64_t number = 0;
  /// When the frame came, or was due: a time of the steady clock (util/steady_ns.h).
  int64_t captured_ns = 0;
  FrameSize size;
  std::vector<uint8_t> pixels;        ///< [height, width, channels], row-major
  std::vector<uint8_t> pixel_labels;  ///< empty, or [height, width]: a class or kUnlabelled
  std::optional<int> label;           ///< the class of the whole frame
};

/// width x height; 0 for sizes that are not positive. Sides are at most kMaxFrameSide.
int64_t pixel_count(FrameSize size);
/// Bytes of the pixels.
int64_t frame_bytes(FrameSize size);

/// Throws ConfigError, which names `what`, for a size that no frame may have: a side that is not in
/// 1..kMaxFrameSide, channels other than 1 and 3, more than kMaxFrameBytes.
void check_frame_size(FrameSize size, std::string_view what);

/// "640x480": width, then height. Throws ConfigError naming `text`, also for a size that no frame
/// may have.
FrameSize parse_frame_size(std::string_view text, int channels);

/// "640x480 RGB".
std::string to_string(FrameSize size);

}  // namespace penstock::frames
