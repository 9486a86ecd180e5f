#include "penstock/train/data/synthetic_dataset.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "penstock/train/data/sample_shape.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

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

/// Patterns of data whose targets are no classes.
constexpr int64_t kPatternsWithoutClasses = 10;
/// Tokens that are used of large vocabularies: so many can be learned from few samples.
constexpr int64_t kMostTokens = 64;

/// How many different tokens fit all inputs and the targets of each place.
int64_t common_values(const SampleSpec& sample) {
  int64_t values = kMostTokens;
  for (const model::InputSpec& input : sample.inputs) {
    if (input.values > 0 && input.name.find("mask") == std::string::npos)
      values = std::min(values, input.values);
  }
  if (sample.targets.needed && sample.targets.type == at::kLong && !sample.targets.shape.empty())
    values = std::min(values, sample.targets.classes);
  return values;
}

}  // namespace

SyntheticDataset::SyntheticDataset(SampleSpec sample, int64_t samples, uint64_t seed, uint64_t part)
    : sample_(std::move(sample)),
      samples_(samples),
      classes_(sample_.targets.classes > 0 && sample_.targets.shape.empty()
                   ? sample_.targets.classes
                   : kPatternsWithoutClasses),
      values_(common_values(sample_)),
      pattern_seed_(derive_seed(seed, hash_name("synthetic pattern"))),
      noise_seed_(derive_seed(seed, hash_name("synthetic noise"), part)) {
  PENSTOCK_CHECK(samples >= 1 && classes_ >= 1, samples, classes_);
  for (const model::InputSpec& input : sample_.inputs) sample_elements(input.shape);
}

/// `stream` tells the inputs apart; the first one's patterns are those of a data set of its own.
void SyntheticDataset::write_pattern(int64_t label, const model::Shape& shape, size_t stream,
                                     float* out) const {
  const uint64_t seed = stream == 0 ? pattern_seed_ : derive_seed(pattern_seed_, stream);
  const int64_t width = shape.empty() ? 1 : shape.back();
  const int64_t height = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  int64_t channels = 1;
  for (size_t d = 0; d + 2 < shape.size(); ++d) channels *= shape[d];
  const int64_t across = std::min(width, shape.size() > 1 ? kPatches : kPatches * kPatches);
  const int64_t down = std::min(height, kPatches);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < height; ++y, out += width) {
      if (y > 0 && y * down / height == (y - 1) * down / height) {
        std::copy(out - width, out, out);  // a row of the same patches
        continue;
      }
      const uint64_t row_seed = derive_seed(seed, label, c, y * down / height);
      for (int64_t patch = 0; patch < across; ++patch) {
        const float value = unit_noise(derive_seed(row_seed, patch));
        // Position x lies in patch x * across / width.
        const int64_t begin = (patch * width + across - 1) / across;
        const int64_t end = ((patch + 1) * width + across - 1) / across;
        std::fill(out + begin, out + end, value);
      }
    }
  }
}

void SyntheticDataset::add_noise(int64_t index, int64_t elements, size_t stream, float* out) const {
  const uint64_t seed = stream == 0 ? noise_seed_ : derive_seed(noise_seed_, stream);
  Rng rng(derive_seed(seed, index));
  int64_t i = 0;
  for (; i + 4 <= elements; i += 4) {
    const uint64_t bits = rng.next();
    out[i] += unit_noise(bits);
    out[i + 1] += unit_noise(bits >> 16);
    out[i + 2] += unit_noise(bits >> 32);
    out[i + 3] += unit_noise(bits >> 48);
  }
  for (; i < elements; ++i) out[i] += unit_noise(rng.next());
}

at::Tensor SyntheticDataset::patterns(const std::vector<int64_t>& indices,
                                      const model::Shape& shape, size_t stream,
                                      bool with_noise) const {
  at::Tensor result = at::empty(batch_shape(indices.size(), shape), at::kFloat);
  const int64_t elements = result.numel() / std::max<int64_t>(1, result.size(0));
  auto* out = result.data_ptr<float>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < samples_, index, samples_);
    write_pattern(index % classes_, shape, stream, out);
    if (with_noise) add_noise(index, elements, stream, out);
    out += elements;
  }
  return result;
}

void SyntheticDataset::write_tokens(int64_t index, int64_t first, int64_t count, int64_t values,
                                    int64_t* out) const {
  Rng rng(derive_seed(noise_seed_, hash_name("tokens"), index));
  // A sample of class c steps by c + 1; every fourth token or so is any.
  const int64_t step = 1 + index % classes_ % std::max<int64_t>(1, values - 1);
  const auto any = [&] { return static_cast<int64_t>(rng.next() % static_cast<uint64_t>(values)); };
  int64_t token = any();
  for (int64_t i = 0; i < first + count; ++i) {
    if (i >= first) out[i - first] = token;
    token = rng.next() % 4 == 0 ? any() : (token + step) % values;
  }
}

at::Tensor SyntheticDataset::tokens(const std::vector<int64_t>& indices, const model::Shape& shape,
                                    int64_t first, int64_t values) const {
  at::Tensor result = at::empty(batch_shape(indices.size(), shape), at::kLong);
  const int64_t elements = result.numel() / std::max<int64_t>(1, result.size(0));
  auto* out = result.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < samples_, index, samples_);
    write_tokens(index, first, elements, values, out);
    out += elements;
  }
  return result;
}

bool SyntheticDataset::has_tokens() const {
  return std::any_of(sample_.inputs.begin(), sample_.inputs.end(), [](const auto& input) {
    return at::isIntegralType(input.type, /*includeBool=*/false);
  });
}

model::Tensors SyntheticDataset::inputs(const std::vector<int64_t>& indices) const {
  model::Tensors batch;
  for (size_t i = 0; i < sample_.inputs.size(); ++i) {
    const model::InputSpec& input = sample_.inputs[i];
    at::Tensor values;
    if (input.name.find("mask") != std::string::npos)
      values = at::ones(batch_shape(indices.size(), input.shape), at::kFloat);
    else if (at::isIntegralType(input.type, /*includeBool=*/true))
      values = tokens(indices, input.shape, 0, values_);
    else
      values = patterns(indices, input.shape, i, /*with_noise=*/true);
    batch.push_back(values.to(input.type));
  }
  return batch;
}

at::Tensor SyntheticDataset::targets(const std::vector<int64_t>& indices) const {
  const model::TargetSpec& spec = sample_.targets;
  if (!spec.needed) return {};
  if (spec.type == at::kLong && !spec.shape.empty()) {
    if (has_tokens()) return tokens(indices, spec.shape, 1, values_);
    const at::Tensor wanted =
        patterns(indices, spec.shape, sample_.inputs.size(), /*with_noise=*/false);
    return wanted.gt(0).to(at::kLong).clamp_max(spec.classes - 1);
  }
  if (spec.type == at::kLong) {
    at::Tensor result = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
    auto* out = result.data_ptr<int64_t>();
    for (const int64_t index : indices) {
      PENSTOCK_CHECK(index >= 0 && index < samples_, index, samples_);
      *out++ = index % classes_;
    }
    return result;
  }
  const at::Tensor wanted =
      patterns(indices, spec.shape, sample_.inputs.size(), /*with_noise=*/false);
  return spec.are_probabilities ? wanted.gt(0).to(at::kFloat) : wanted;
}

DataSplit make_synthetic(const DataSpec& spec) {
  constexpr int64_t kTrainSamples = 2048;
  constexpr int64_t kTestSamples = 512;
  SampleSpec sample = spec.sample;
  if (is_labelled(sample) && sample.inputs.front().shape.empty())
    sample.inputs.front().shape = {1, 28, 28};
  const auto make = [&](int64_t samples, uint64_t part) {
    return std::make_shared<SyntheticDataset>(sample, samples, spec.seed, part);
  };
  return {make(spec.train_samples > 0 ? spec.train_samples : kTrainSamples, 0),
          make(spec.test_samples > 0 ? spec.test_samples : kTestSamples, 1)};
}

}  // namespace penstock::train
