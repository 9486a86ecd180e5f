// Images in other sizes, as Pillow makes them, and so torchvision's Resize of its images: linear
// weights over all pixels that a new one covers, in whole numbers, first along rows, then along
// columns.
//
//   resize_and_crop({pixels, 640, 480, 3}, {341, 256}, {58, 16, 224, 224}, out);
#pragma once

#include <cstdint>

namespace penstock::frames {

struct PixelView {
  const uint8_t* pixels = nullptr;  ///< [height, width, channels]
  int width = 0;
  int height = 0;
  int channels = 0;
};
struct Extent {
  int width = 0;
  int height = 0;
};
struct Crop {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
};

/// Writes [crop.height, crop.width, channels]: what lies in `crop` of the image in the size
/// `whole`, bit for bit as Pillow's resize with BILINEAR. The crop lies in it; all sizes are at
/// least 1. O(pixels of the crop x pixels that each covers). Pure; thread-safe.
void resize_and_crop(const PixelView& image, const Extent& whole, const Crop& crop, uint8_t* out);

}  // namespace penstock::frames
