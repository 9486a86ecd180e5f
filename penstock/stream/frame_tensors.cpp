#include "penstock/stream/frame_tensors.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "penstock/model/loss.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::stream {
namespace {

const std::array<float, 256>& brightness() {
  static const std::array<float, 256> kTable = [] {
    std::array<float, 256> table{};
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) / 255.0F - 0.5F;
    return table;
  }();
  return kTable;
}

/// Makes a tensor anew unless it has these sizes and nobody else holds it.
void make_own(at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type) {
  if (!tensor.defined() || tensor.use_count() > 1 || tensor.storage().use_count() > 1 ||
      tensor.sizes() != sizes)
    tensor = at::empty(sizes, type);
}

}  // namespace

void to_tensor(const frames::Frame& frame, at::Tensor& tensor) {
  const int64_t height = frame.size.height;
  const int64_t width = frame.size.width;
  const int64_t channels = frame.size.channels;
  const std::array<int64_t, 4> sizes = {1, channels, height, width};
  make_own(tensor, sizes, at::kFloat);
  const std::array<float, 256>& table = brightness();
  const uint8_t* pixels = frame.pixels.data();
  const int64_t count = height * width;
  for (int64_t c = 0; c < channels; ++c) {
    float* const to = tensor.data_ptr<float>() + c * count;
    for (int64_t i = 0; i < count; ++i) to[i] = table[pixels[i * channels + c]];
  }
}

bool to_targets(const frames::Frame& frame, int classes, at::Tensor& tensor) {
  const bool has_labels = std::any_of(frame.pixel_labels.begin(), frame.pixel_labels.end(),
                                      [](uint8_t label) { return label != frames::kUnlabelled; });
  if (!has_labels) return false;
  const std::array<int64_t, 3> sizes = {1, frame.size.height, frame.size.width};
  make_own(tensor, sizes, at::kLong);
  int64_t* const to = tensor.data_ptr<int64_t>();
  for (size_t i = 0; i < frame.pixel_labels.size(); ++i) {
    const uint8_t label = frame.pixel_labels[i];
    if (label != frames::kUnlabelled && label >= classes) {
      throw RuntimeError(fmt::format("frame {} has a pixel of class {}, but there are {} classes",
                                     frame.number, label, classes));
    }
    to[i] = label == frames::kUnlabelled ? model::kNoTarget : label;
  }
  return true;
}

std::vector<uint8_t> to_pixels(const at::Tensor& tensor, int64_t first, int channels) {
  PENSTOCK_CHECK(tensor.dim() == 4 && tensor.size(1) >= first + channels, tensor.dim());
  const at::Tensor source = tensor.detach().contiguous();
  const int64_t count = source.size(2) * source.size(3);
  std::vector<uint8_t> pixels(static_cast<size_t>(count * channels));
  for (int64_t c = 0; c < channels; ++c) {
    const float* const from = source.data_ptr<float>() + (first + c) * count;
    for (int64_t i = 0; i < count; ++i) {
      // A diverged model makes numbers that are none.
      const float value = std::isfinite(from[i]) ? from[i] : 0.5F;
      pixels[static_cast<size_t>(i * channels + c)] =
          static_cast<uint8_t>(std::lround(std::clamp(value + 0.5F, 0.0F, 1.0F) * 255.0F));
    }
  }
  return pixels;
}

}  // namespace penstock::stream
