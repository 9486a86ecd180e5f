// What Pillow 12.0.0 makes of the same pixels: Image.resize(size, BILINEAR).
#include "penstock/frames/resample.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "penstock/util/files/files.h"

namespace penstock::frames {
namespace {

std::vector<uint8_t> made_pixels(int width, int height, int channels) {
  std::vector<uint8_t> pixels;
  uint64_t seed = 1;
  for (int i = 0; i < width * height * channels; ++i) {
    seed = (seed * 1103515245 + 12345) % (uint64_t{1} << 31);
    pixels.push_back(static_cast<uint8_t>(seed >> 23));
  }
  return pixels;
}

std::vector<uint8_t> resized(const PixelView& image, const Extent& whole, const Crop& crop) {
  std::vector<uint8_t> out(static_cast<size_t>(crop.width * crop.height * image.channels));
  resize_and_crop(image, whole, crop, out.data());
  return out;
}

struct Resize {
  int width, height, channels;
  Extent to;
  uint32_t crc;  ///< of Pillow's pixels
};

TEST(Resample, PixelsArePillowsBitForBit) {
  const Resize kResizes[] = {
      {7, 5, 3, {3, 2}, 0x6a68eac9},  {7, 5, 1, {3, 2}, 0x09a383da},
      {4, 4, 3, {9, 10}, 0xc7d5fa67}, {64, 48, 3, {20, 15}, 0x41e0c32e},
      {5, 31, 1, {5, 7}, 0x5ce2a9de}, {100, 3, 3, {33, 1}, 0x69c0928f},
  };
  for (const Resize& resize : kResizes) {
    const auto pixels = made_pixels(resize.width, resize.height, resize.channels);
    const std::vector<uint8_t> out =
        resized({pixels.data(), resize.width, resize.height, resize.channels}, resize.to,
                {0, 0, resize.to.width, resize.to.height});
    EXPECT_EQ(crc32_of({reinterpret_cast<const char*>(out.data()), out.size()}), resize.crc)
        << resize.width << "x" << resize.height;
  }
  const auto pixels = made_pixels(7, 5, 1);
  EXPECT_EQ(resized({pixels.data(), 7, 5, 1}, {3, 2}, {0, 0, 3, 2}),
            (std::vector<uint8_t>{107, 111, 130, 148, 165, 169}));
}

TEST(Resample, ACropIsAPartOfTheWhole) {
  const auto pixels = made_pixels(40, 30, 3);
  const PixelView image{pixels.data(), 40, 30, 3};
  const std::vector<uint8_t> whole = resized(image, {16, 12}, {0, 0, 16, 12});
  const std::vector<uint8_t> part = resized(image, {16, 12}, {5, 3, 7, 6});
  for (size_t y = 0; y < 6; ++y) {
    for (size_t x = 0; x < 7 * 3; ++x)
      ASSERT_EQ(part[y * 7 * 3 + x], whole[(y + 3) * 16 * 3 + 5 * 3 + x]) << x << ", " << y;
  }
}

TEST(Resample, TheSameSizeIsTheSame) {
  const auto pixels = made_pixels(9, 4, 1);
  EXPECT_EQ(resized({pixels.data(), 9, 4, 1}, {9, 4}, {0, 0, 9, 4}), pixels);
}

}  // namespace
}  // namespace penstock::frames
