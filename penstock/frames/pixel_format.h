// How raw frames lie in memory, and how they become rows of grey or RGB pixels.
//
//   parse_pixel_format("yuv420p") == PixelFormat::Yuv420p
#pragma once

#include <cstdint>
#include <string_view>

#include "penstock/frames/frame.h"

namespace penstock::frames {

/// The names are those of ffmpeg (`-pix_fmt`).
enum class PixelFormat : uint8_t {
  Rgb24,    ///< "rgb24": 3 bytes per pixel
  Bgr24,    ///< "bgr24": the same in the order blue, green, red
  Gray,     ///< "gray": 1 byte per pixel
  Rgba,     ///< "rgba": 4 bytes per pixel; the last one is ignored
  Yuv420p,  ///< "yuv420p": planes Y, U, V, the last two halved both ways (rounded up); BT.601, 16
            ///< to 235
};

/// Throws ConfigError, which lists the names, for any other text.
PixelFormat parse_pixel_format(std::string_view text);
std::string_view to_string(PixelFormat format);

/// What a frame of this format has by itself: kGrey or kRgb.
int channels_of(PixelFormat format);

/// Bytes of one raw frame; `size` must be one that frames may have.
int64_t raw_frame_bytes(PixelFormat format, FrameSize size);

/// True if the raw bytes are already those of a frame of this size.
bool is_plain(PixelFormat format, FrameSize size);

/// Writes frame_bytes(size) bytes to `pixels` from raw_frame_bytes() bytes at `raw`. Colours become
/// grey by their luma (0.299 R + 0.587 G + 0.114 B), grey becomes three equal channels. Integer
/// arithmetic: the same bytes on every machine.
void convert_pixels(PixelFormat format, FrameSize size, const uint8_t* raw, uint8_t* pixels);

}  // namespace penstock::frames
