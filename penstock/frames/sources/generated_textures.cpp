#include "penstock/frames/sources/generated_textures.h"

#include <algorithm>

#include "penstock/util/numbers/rng.h"

namespace penstock::frames {

namespace {

using Colour = std::array<int, 3>;

/// Far from each other and from the background, in colour and in luma.
constexpr std::array<Colour, 8> kKindColours = {{{232, 64, 52},
                                                 {62, 120, 240},
                                                 {246, 210, 60},
                                                 {60, 200, 90},
                                                 {210, 90, 220},
                                                 {90, 225, 230},
                                                 {245, 150, 60},
                                                 {240, 240, 240}}};

int luma(const Colour& colour) { return (colour[0] * 77 + colour[1] * 150 + colour[2] * 29) >> 8; }

void write_colour(const Colour& colour, int channels, uint8_t* out) {
  const auto byte = [](int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); };
  if (channels == kGrey) {
    *out = byte(luma(colour));
    return;
  }
  for (size_t i = 0; i < colour.size(); ++i) out[i] = byte(colour[i]);
}

/// How bright the pattern is at (x, y) of a tile, in 1/256 of its colour.
int pattern_tone(int pattern, int x, int y, uint64_t seed) {
  constexpr int kDark = 146;
  constexpr int kLight = 262;
  const int half = ObjectTexture::kSide / 2;
  switch (pattern) {
    case 0:
      return y % 16 < 8 ? kLight : kDark;  // stripes
    case 1:
      return (x / 16 + y / 16) % 2 == 0 ? kLight : kDark;  // squares
    case 2: {                                              // dots
      const int u = x % half - half / 2;
      const int v = y % half - half / 2;
      return u * u + v * v < 90 ? kDark : kLight;
    }
    default:  // spots
      return derive_seed(seed, x / 8, y / 8) % 3 == 0 ? kDark : kLight;
  }
}

/// Adds noise with one random value per `cell` x `cell` pixels, smooth between them, up to
/// `strength`.
void add_noise(FrameSize size, int cell, int strength, uint64_t seed, std::vector<int>& sums) {
  const int columns = size.width / cell + 2;
  const int rows = size.height / cell + 2;
  std::vector<int> lattice(static_cast<size_t>(columns) * static_cast<size_t>(rows));
  for (size_t i = 0; i < lattice.size(); ++i)
    lattice[i] = static_cast<int>(derive_seed(seed, cell, i) & 255);
  // Smoothstep in 1/256.
  const auto smooth = [cell](int offset) {
    const int t = offset * 256 / cell;
    return t * t * (768 - 2 * t) / 65536;
  };
  size_t at = 0;
  for (int y = 0; y < size.height; ++y) {
    const int* const above = lattice.data() + static_cast<std::ptrdiff_t>(y / cell) * columns;
    const int* const below = above + columns;
    const int v = smooth(y % cell);
    for (int x = 0; x < size.width; ++x) {
      const int column = x / cell;
      const int u = smooth(x % cell);
      const int top = above[column] * (256 - u) + above[column + 1] * u;
      const int bottom = below[column] * (256 - u) + below[column + 1] * u;
      sums[at++] += ((top * (256 - v) + bottom * v) >> 16) * strength;
    }
  }
}

}  // namespace

int64_t integer_sine(int64_t angle) {
  // Bhaskara's approximation over half a turn, H: 16 x (H - x) / (5 H^2 - 4 x (H - x)).
  constexpr int64_t kHalf = 32768;
  const int64_t turn = angle & 65535;
  const int64_t x = turn & (kHalf - 1);
  const int64_t product = x * (kHalf - x);
  const int64_t sine = (product << 18) / (5 * kHalf * kHalf - 4 * product);
  return turn < kHalf ? sine : -sine;
}

ObjectTexture make_object_texture(int kind, int channels, uint64_t seed) {
  // Kinds with the same shape differ in their pattern, those with the same colour in both.
  const int pattern = (kind - 1 + (kind - 1) / 6) % 4;
  const Colour& base = kKindColours[static_cast<size_t>(kind - 1) % kKindColours.size()];
  Rng rng(seed);
  const int own_tone = 226 + static_cast<int>(rng.below(48));
  ObjectTexture texture;
  uint8_t* out = texture.pixels.data();
  for (int y = 0; y < ObjectTexture::kSide; ++y) {
    for (int x = 0; x < ObjectTexture::kSide; ++x, out += channels) {
      const int grain = static_cast<int>(rng.below(25)) - 12;
      const int tone = pattern_tone(pattern, x, y, seed) * own_tone / 256;
      Colour colour = base;
      for (int& part : colour) part = part * tone / 256 + grain;
      write_colour(colour, channels, out);
    }
  }
  return texture;
}

std::vector<uint8_t> make_background(FrameSize size, uint64_t seed) {
  constexpr Colour kFirst = {38, 52, 60};
  constexpr Colour kSecond = {112, 104, 88};
  const int side = std::min(size.width, size.height);
  std::vector<int> sums(static_cast<size_t>(pixel_count(size)));
  // Strengths add up to 16.
  add_noise(size, std::max(side / 3, 2), 7, seed, sums);
  add_noise(size, std::max(side / 8, 2), 5, seed, sums);
  add_noise(size, std::max(side / 24, 1), 2, seed, sums);
  add_noise(size, 1, 2, seed, sums);
  std::vector<uint8_t> background(static_cast<size_t>(frame_bytes(size)));
  uint8_t* out = background.data();
  for (const int sum : sums) {
    const int share = sum / 16;
    Colour colour{};
    for (size_t i = 0; i < colour.size(); ++i)
      colour[i] = (kFirst[i] * (255 - share) + kSecond[i] * share) / 255;
    write_colour(colour, size.channels, out);
    out += size.channels;
  }
  return background;
}

}  // namespace penstock::frames
