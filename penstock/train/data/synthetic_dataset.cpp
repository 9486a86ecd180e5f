#include "penstock/train/data/synthetic_dataset.h"

#include <torch/types.h>

#include <algorithm>

#include "penstock/train/data/sample_shape.h"
#include "penstock/util/check.h"
#include "penstock/util/rng.h"

namespace penstock::train {
namespace {

/// Patterns have this many patches along the last two dimensions: convolutions and pooling keep
/// such patterns; finer ones would be lost in their averages.
constexpr int64_t kPatches = 4;

/// Uniform with mean 0 and deviation 1, from 16 random bits.
float unit_noise(uint64_t bits) {
  constexpr float kScale = 3.4641016F / 65536.0F;
  return (static_cast<float>(bits & 0xFFFF) - 32767.5F) * kScale;
}

}  // namespace

SyntheticDataset::SyntheticDataset(model::Shape shape, int64_t samples, int64_t classes,
                                   uint64_t seed, uint64_t part)
    : shape_(std::move(shape)),
      elements_(sample_elements(shape_)),
      samples_(samples),
      classes_(classes),
      pattern_seed_(derive_seed(seed, hash_name("synthetic pattern"))),
      noise_seed_(derive_seed(seed, hash_name("synthetic noise"), part)) {
  PENSTOCK_CHECK(samples >= 1 && classes >= 1, samples, classes);
}

void SyntheticDataset::write_pattern(int64_t label, float* out) const {
  const int64_t width = shape_.back();
  const int64_t height = shape_.size() > 1 ? shape_[shape_.size() - 2] : 1;
  const int64_t channels = elements_ / (width * height);
  const int64_t across = std::min(width, shape_.size() > 1 ? kPatches : kPatches * kPatches);
  const int64_t down = std::min(height, kPatches);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      const uint64_t row_seed = derive_seed(pattern_seed_, label, c, y * down / height);
      for (int64_t patch = 0; patch < across; ++patch) {
        const float value = unit_noise(derive_seed(row_seed, patch));
        // Position x lies in patch x * across / width.
        const int64_t begin = (patch * width + across - 1) / across;
        const int64_t end = ((patch + 1) * width + across - 1) / across;
        std::fill(out + begin, out + end, value);
      }
      out += width;
    }
  }
}

void SyntheticDataset::add_noise(int64_t index, float* out) const {
  Rng rng(derive_seed(noise_seed_, index));
  int64_t i = 0;
  for (; i + 4 <= elements_; i += 4) {
    const uint64_t bits = rng.next();
    out[i] += unit_noise(bits);
    out[i + 1] += unit_noise(bits >> 16);
    out[i + 2] += unit_noise(bits >> 32);
    out[i + 3] += unit_noise(bits >> 48);
  }
  for (; i < elements_; ++i) out[i] += unit_noise(rng.next());
}

at::Tensor SyntheticDataset::inputs(const std::vector<int64_t>& indices) const {
  at::Tensor result = at::empty(batch_shape(indices.size(), shape_), at::kFloat);
  auto* out = result.data_ptr<float>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < samples_, index, samples_);
    write_pattern(index % classes_, out);
    add_noise(index, out);
    out += elements_;
  }
  return result;
}

at::Tensor SyntheticDataset::targets(const std::vector<int64_t>& indices) const {
  at::Tensor result = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  auto* out = result.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < samples_, index, samples_);
    *out++ = index % classes_;
  }
  return result;
}

}  // namespace penstock::train
