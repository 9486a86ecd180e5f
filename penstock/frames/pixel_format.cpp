#include "penstock/frames/pixel_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::frames {

namespace {

struct FormatRow {
  PixelFormat format;
  std::string_view name;
  int channels;
};

constexpr std::array<FormatRow, 5> kFormats = {{
    {PixelFormat::Rgb24, "rgb24", kRgb},
    {PixelFormat::Bgr24, "bgr24", kRgb},
    {PixelFormat::Gray, "gray", kGrey},
    {PixelFormat::Rgba, "rgba", kRgb},
    {PixelFormat::Yuv420p, "yuv420p", kRgb},
}};

const FormatRow& row_of(PixelFormat format) { return kFormats[static_cast<size_t>(format)]; }

uint8_t luma(int red, int green, int blue) {
  return static_cast<uint8_t>((red * 77 + green * 150 + blue * 29 + 128) >> 8);
}

uint8_t to_byte(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

void write_pixel(uint8_t red, uint8_t green, uint8_t blue, int channels, uint8_t*& out) {
  if (channels == kGrey) {
    *out++ = luma(red, green, blue);
    return;
  }
  *out++ = red;
  *out++ = green;
  *out++ = blue;
}

/// Pixels whose bytes lie together: `step` bytes each, with the colours at these places.
void convert_interleaved(int step, int red, int blue, FrameSize size, const uint8_t* raw,
                         uint8_t* out) {
  const int green = step == 1 ? 0 : 1;
  for (int64_t left = pixel_count(size); left > 0; --left, raw += step)
    write_pixel(raw[red], raw[green], raw[blue], size.channels, out);
}

/// BT.601, in 1/256.
void convert_yuv(FrameSize size, const uint8_t* raw, uint8_t* out) {
  const int half_width = (size.width + 1) / 2;
  const int half_height = (size.height + 1) / 2;
  const uint8_t* const u_plane = raw + pixel_count(size);
  const uint8_t* const v_plane = u_plane + int64_t{half_width} * half_height;
  for (int y = 0; y < size.height; ++y) {
    const uint8_t* const luma_row = raw + int64_t{y} * size.width;
    const int64_t chroma_row = int64_t{y / 2} * half_width;
    for (int x = 0; x < size.width; ++x) {
      const int light = 298 * (luma_row[x] - 16) + 128;
      if (size.channels == kGrey) {
        *out++ = to_byte(light >> 8);
        continue;
      }
      const int u = u_plane[chroma_row + x / 2] - 128;
      const int v = v_plane[chroma_row + x / 2] - 128;
      *out++ = to_byte((light + 409 * v) >> 8);
      *out++ = to_byte((light - 100 * u - 208 * v) >> 8);
      *out++ = to_byte((light + 516 * u) >> 8);
    }
  }
}

}  // namespace

PixelFormat parse_pixel_format(std::string_view text) {
  std::string names;
  for (const FormatRow& row : kFormats) {
    if (row.name == text) return row.format;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  throw ConfigError(fmt::format("expected a pixel format ({}), found {}", names, in_quotes(text)));
}

std::string_view to_string(PixelFormat format) { return row_of(format).name; }

int channels_of(PixelFormat format) { return row_of(format).channels; }

int64_t raw_frame_bytes(PixelFormat format, FrameSize size) {
  const int64_t pixels = pixel_count(size);
  switch (format) {
    case PixelFormat::Rgb24:
    case PixelFormat::Bgr24:
      return pixels * 3;
    case PixelFormat::Gray:
      return pixels;
    case PixelFormat::Rgba:
      return pixels * 4;
    case PixelFormat::Yuv420p:
      break;
  }
  return pixels + 2 * (int64_t{size.width + 1} / 2) * (int64_t{size.height + 1} / 2);
}

bool is_plain(PixelFormat format, FrameSize size) {
  return (format == PixelFormat::Rgb24 && size.channels == kRgb) ||
         (format == PixelFormat::Gray && size.channels == kGrey);
}

void convert_pixels(PixelFormat format, FrameSize size, const uint8_t* raw, uint8_t* pixels) {
  if (is_plain(format, size)) {
    std::memcpy(pixels, raw, static_cast<size_t>(frame_bytes(size)));
    return;
  }
  switch (format) {
    case PixelFormat::Rgb24:
      return convert_interleaved(3, 0, 2, size, raw, pixels);
    case PixelFormat::Bgr24:
      return convert_interleaved(3, 2, 0, size, raw, pixels);
    case PixelFormat::Gray:
      return convert_interleaved(1, 0, 0, size, raw, pixels);
    case PixelFormat::Rgba:
      return convert_interleaved(4, 0, 2, size, raw, pixels);
    case PixelFormat::Yuv420p:
      return convert_yuv(size, raw, pixels);
  }
}

}  // namespace penstock::frames
