// Surfaces of the generated scene, made from a seed in integer arithmetic. Internal to sources.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "penstock/frames/frame.h"

namespace penstock::frames {

/// A square tile that repeats, with `channels` values per pixel.
struct ObjectTexture {
  static constexpr int kSide = 64;  ///< a power of two
  std::array<uint8_t, size_t{kSide} * kSide * kRgb> pixels{};
};

/// The surface of an object of this kind (from 1): a colour and a pattern that belong to the kind
/// (stripes, squares, dots or spots), with differences of tone that belong to the seed.
ObjectTexture make_object_texture(int kind, int channels, uint64_t seed);

/// A dull background [height, width, channels]: noise of several sizes between two colours.
std::vector<uint8_t> make_background(FrameSize size, uint64_t seed);

/// sin in 1/16384 of an angle in 1/65536 turn, to 0.2%.
int64_t integer_sine(int64_t angle);

}  // namespace penstock::frames
