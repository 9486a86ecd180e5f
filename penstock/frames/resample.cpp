#include "penstock/frames/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace penstock::frames {
namespace {

/// Of a weight's fraction, as in Pillow's Resample.c: products with bytes fit into 32 bits.
constexpr int kWeightBits = 32 - 8 - 2;
constexpr int32_t kHalf = int32_t{1} << (kWeightBits - 1);

/// Which pixels make each new one, and how much of each.
struct Weights {
  std::vector<int> first;       ///< pixel of each new one
  std::vector<int> count;       ///< pixels
  std::vector<int32_t> values;  ///< [new pixels, most]
  int most = 0;
};

/// Of the new pixels [from, from + number) of `size` out of `old_size`.
Weights weights_of(int old_size, int size, int from, int number) {
  const double scale = static_cast<double>(old_size) / size;
  const double support = std::max(scale, 1.0);
  Weights weights;
  weights.most = static_cast<int>(std::ceil(support)) * 2 + 1;
  weights.values.resize(static_cast<size_t>(number) * static_cast<size_t>(weights.most));
  std::vector<double> shares(static_cast<size_t>(weights.most));
  for (int i = 0; i < number; ++i) {
    const double center = (from + i + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end = std::min(static_cast<int>(center + support + 0.5), old_size);
    double sum = 0;
    for (int x = first; x < end; ++x) {
      const double distance = std::abs((x - center + 0.5) * (1 / support));
      sum += shares[static_cast<size_t>(x - first)] = distance < 1 ? 1 - distance : 0;
    }
    for (int x = 0; x < end - first; ++x) {
      const double share = shares[static_cast<size_t>(x)] / (sum != 0 ? sum : 1);
      weights.values[static_cast<size_t>(i) * static_cast<size_t>(weights.most) +
                     static_cast<size_t>(x)] =
          static_cast<int32_t>(0.5 + share * (1 << kWeightBits));
    }
    weights.first.push_back(first);
    weights.count.push_back(end - first);
  }
  return weights;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

/// `step`: bytes from one pixel that makes a new one to the next.
template <int kChannels>
void mix(const uint8_t* from, size_t step, const int32_t* weights, int count, uint8_t* out) {
  int32_t sums[kChannels];
  std::fill_n(sums, kChannels, kHalf);
  for (int k = 0; k < count; ++k, from += step)
    for (int c = 0; c < kChannels; ++c) sums[c] += from[c] * weights[k];
  for (int c = 0; c < kChannels; ++c) out[c] = rounded(sums[c]);
}

void mix_any(const uint8_t* from, size_t step, const int32_t* weights, int count, int channels,
             uint8_t* out) {
  if (channels == 3) return mix<3>(from, step, weights, count, out);
  for (int c = 0; c < channels; ++c) mix<1>(from + c, step, weights, count, out + c);
}

}  // namespace

void resize_and_crop(const PixelView& image, const Extent& whole, const Crop& crop, uint8_t* out) {
  const auto channels = static_cast<size_t>(image.channels);
  const size_t old_row = static_cast<size_t>(image.width) * channels;
  const size_t row = static_cast<size_t>(crop.width) * channels;
  const Weights across = weights_of(image.width, whole.width, crop.left, crop.width);
  const Weights down = weights_of(image.height, whole.height, crop.top, crop.height);
  const int first = down.first.front();
  const int end = down.first.back() + down.count.back();
  // Rows that the crop needs, of their new width.
  std::vector<uint8_t> narrow(static_cast<size_t>(end - first) * row);
  for (int y = first; y < end; ++y) {
    const uint8_t* const from = image.pixels + static_cast<size_t>(y) * old_row;
    uint8_t* to = narrow.data() + static_cast<size_t>(y - first) * row;
    for (size_t x = 0; x < static_cast<size_t>(crop.width); ++x, to += channels) {
      mix_any(from + static_cast<size_t>(across.first[x]) * channels, channels,
              across.values.data() + x * static_cast<size_t>(across.most), across.count[x],
              image.channels, to);
    }
  }
  // Whole rows at a time, so that neighbours are computed together.
  std::vector<int32_t> sums(row);
  for (size_t y = 0; y < static_cast<size_t>(crop.height); ++y, out += row) {
    const uint8_t* from = narrow.data() + static_cast<size_t>(down.first[y] - first) * row;
    const int32_t* const weights = down.values.data() + y * static_cast<size_t>(down.most);
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int k = 0; k < down.count[y]; ++k, from += row)
      for (size_t b = 0; b < row; ++b) sums[b] += from[b] * weights[k];
    std::transform(sums.begin(), sums.end(), out, rounded);
  }
}

}  // namespace penstock::frames
