#include "penstock/frames/pixel_format.h"

#include <gmock/gmock.h>

#include <vector>

#include "penstock/frames/testing_frames.h"

namespace penstock::frames {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes converted(PixelFormat format, FrameSize size, const Bytes& raw) {
  EXPECT_EQ(static_cast<int64_t>(raw.size()), raw_frame_bytes(format, size));
  Bytes pixels(static_cast<size_t>(frame_bytes(size)));
  convert_pixels(format, size, raw.data(), pixels.data());
  return pixels;
}

TEST(PixelFormat, NamesReadBackAndOthersAreRefused) {
  for (const char* name : {"rgb24", "bgr24", "gray", "rgba", "yuv420p"})
    EXPECT_EQ(to_string(parse_pixel_format(name)), name);
  EXPECT_EQ(message_of<ConfigError>([] { parse_pixel_format("grey"); }),
            "expected a pixel format (rgb24, bgr24, gray, rgba, yuv420p), found 'grey'");
}

TEST(PixelFormat, ColoursLieInTheOrderOfTheirNames) {
  const FrameSize size{2, 1, kRgb};
  EXPECT_EQ(converted(PixelFormat::Rgb24, size, {1, 2, 3, 4, 5, 6}), (Bytes{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(converted(PixelFormat::Bgr24, size, {1, 2, 3, 4, 5, 6}), (Bytes{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(converted(PixelFormat::Rgba, size, {1, 2, 3, 9, 4, 5, 6, 9}),
            (Bytes{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(converted(PixelFormat::Gray, size, {7, 8}), (Bytes{7, 7, 7, 8, 8, 8}));
}

TEST(PixelFormat, GreyIsTheLuma) {
  const FrameSize size{3, 1, kGrey};
  EXPECT_EQ(converted(PixelFormat::Rgb24, size, {255, 255, 255, 255, 0, 0, 0, 255, 0}),
            (Bytes{255, 77, 149}));
  EXPECT_EQ(converted(PixelFormat::Gray, size, {1, 2, 3}), (Bytes{1, 2, 3}));
}

TEST(PixelFormat, Yuv420pHasHalvedPlanesRoundedUp) {
  EXPECT_EQ(raw_frame_bytes(PixelFormat::Yuv420p, {4, 2, kRgb}), 8 + 2 + 2);
  EXPECT_EQ(raw_frame_bytes(PixelFormat::Yuv420p, {3, 3, kRgb}), 9 + 4 + 4);
  // White, black, and pure red (81, 90, 240).
  EXPECT_EQ(converted(PixelFormat::Yuv420p, {1, 1, kRgb}, {235, 128, 128}), (Bytes{255, 255, 255}));
  EXPECT_EQ(converted(PixelFormat::Yuv420p, {1, 1, kRgb}, {16, 128, 128}), (Bytes{0, 0, 0}));
  EXPECT_EQ(converted(PixelFormat::Yuv420p, {1, 1, kRgb}, {81, 90, 240}), (Bytes{255, 0, 0}));
  EXPECT_EQ(converted(PixelFormat::Yuv420p, {1, 1, kGrey}, {235, 0, 0}), (Bytes{255}));
  // The last column and row have a chroma value of their own.
  EXPECT_EQ(converted(PixelFormat::Yuv420p, {3, 1, kRgb}, {81, 81, 235, 90, 128, 240, 128}),
            (Bytes{255, 0, 0, 255, 0, 0, 255, 255, 255}));
}

}  // namespace
}  // namespace penstock::frames
