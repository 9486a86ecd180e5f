#include "penstock/frames/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"
#include "penstock/util/text/units.h"

namespace penstock::frames {

int64_t pixel_count(FrameSize size) {
  if (size.width <= 0 || size.height <= 0) return 0;
  return int64_t{size.width} * size.height;
}

int64_t frame_bytes(FrameSize size) { return pixel_count(size) * std::max(size.channels, 0); }

void check_frame_size(FrameSize size, std::string_view what) {
  const auto is_side = [](int side) { return side >= 1 && side <= kMaxFrameSide; };
  if (!is_side(size.width) || !is_side(size.height)) {
    throw ConfigError(
        fmt::format("{}: expected a width and a height of 1 to {} pixels, found {}x{}", what,
                    kMaxFrameSide, size.width, size.height));
  }
  if (size.channels != kGrey && size.channels != kRgb) {
    throw ConfigError(
        fmt::format("{}: expected 1 channel (grey) or 3 (RGB), found {}", what, size.channels));
  }
  if (frame_bytes(size) > kMaxFrameBytes) {
    throw ConfigError(fmt::format("{}: a frame of {} takes {}; expected at most {}", what,
                                  to_string(size), format_bytes(frame_bytes(size)),
                                  format_bytes(kMaxFrameBytes)));
  }
}

FrameSize parse_frame_size(std::string_view text, int channels) {
  FrameSize size{0, 0, channels};
  const char* const end = text.data() + text.size();
  const auto width = std::from_chars(text.data(), end, size.width);
  bool is_size =
      width.ec == std::errc() && width.ptr != end && (*width.ptr == 'x' || *width.ptr == 'X');
  if (is_size) {
    const auto height = std::from_chars(width.ptr + 1, end, size.height);
    is_size = height.ec == std::errc() && height.ptr == end;
  }
  if (!is_size) {
    throw ConfigError(
        fmt::format("expected a size such as 640x480 (width x height), found {}", in_quotes(text)));
  }
  check_frame_size(size, in_quotes(text));
  return size;
}

std::string to_string(FrameSize size) {
  return fmt::format("{}x{} {}", size.width, size.height, size.channels == kGrey ? "grey" : "RGB");
}

}  // namespace penstock::frames
