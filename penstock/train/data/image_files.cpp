#include "penstock/train/data/image_files.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "penstock/frames/resample.h"
#include "penstock/train/data/sample_shape.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace fs = std::filesystem;

namespace {

/// (byte / 255 - mean) / deviation of each byte.
using PixelTable = std::array<float, 256>;

PixelTable table_of(double mean, double deviation) {
  PixelTable table;
  for (size_t value = 0; value < table.size(); ++value)
    table[value] = static_cast<float>((static_cast<double>(value) / 255 - mean) / deviation);
  return table;
}

const PixelTable& table_of(int channels, int channel) {
  static const PixelTable grey = table_of(0.449, 0.226);
  static const std::array<PixelTable, 3> colours = {table_of(0.485, 0.229), table_of(0.456, 0.224),
                                                    table_of(0.406, 0.225)};
  return channels == 1 ? grey : colours[static_cast<size_t>(channel)];
}

/// Where a crop of `part` begins in the middle of `whole`, as torchvision's CenterCrop rounds: half
/// pixels to the even one.
int middle(int whole, int part) {
  const int left = whole - part;
  return left / 2 + (left % 4 == 3 ? 1 : 0);
}

/// An image may be so much larger than what is cut out of it.
constexpr int64_t kMostCutOff = 64;
constexpr int64_t kMostSide = 16'384;

void check_takes_images(const SampleSpec& wanted, const fs::path& folder) {
  const bool takes = is_labelled(wanted) && wanted.inputs.front().shape.size() == 3;
  const model::Shape shape = takes ? wanted.inputs.front().shape : model::Shape{};
  if (takes && (shape[0] == 1 || shape[0] == 3) && shape[1] <= kMostSide && shape[2] <= kMostSide)
    return;
  throw ConfigError(
      fmt::format("folder '{}': images are channels (1 or 3) x height x width with a class each; "
                  "the model and its loss take {}",
                  printable(folder.string()), describe(wanted)));
}

}  // namespace

ImageFiles::ImageFiles(const fs::path& folder, ImageTree tree, const SampleSpec& wanted, bool turns,
                       const fs::path& opencv_module)
    : folder_(folder),
      opencv_module_(opencv_module),
      turns_(turns),
      images_(std::move(tree.images)) {
  check_takes_images(wanted, folder);
  const model::Shape& shape = wanted.inputs.front().shape;
  sample_ = wanted;
  sample_.targets.classes = std::ssize(tree.classes);
  channels_ = static_cast<int>(shape[0]);
  height_ = static_cast<int>(shape[1]);
  width_ = static_cast<int>(shape[2]);
  decoders_.push_back(take_decoder());  // without OpenCV this is said now
  const int64_t bytes = size() * sample_elements(shape);
  if (bytes <= kMostCachedBytes) {
    cache_ = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(bytes));
    is_cached_ = std::vector<std::atomic<bool>>(images_.size());
  }
}

fs::path ImageFiles::path_of(int64_t index) const {
  return folder_ / images_.at(static_cast<size_t>(index)).path;
}

std::unique_ptr<frames::ImageDecoder> ImageFiles::take_decoder() const {
  {
    MutexLock lock(mutex_);
    if (!decoders_.empty()) {
      std::unique_ptr<frames::ImageDecoder> decoder = std::move(decoders_.back());
      decoders_.pop_back();
      return decoder;
    }
  }
  return std::make_unique<frames::ImageDecoder>(opencv_module_);
}

std::string ImageFiles::decode(const frames::ImageDecoder& decoder, uint8_t* pixels) const {
  const frames::FrameSize size = decoder.size();
  // The side that fits closer has the wanted length; torchvision's Resize rounds the other down.
  const int64_t across = int64_t{width_} * size.height;
  const int64_t down = int64_t{height_} * size.width;
  const int64_t width = across >= down ? width_ : down / size.height;
  const int64_t height = across >= down ? across / size.width : height_;
  const int64_t area = static_cast<int64_t>(width_) * height_;
  if (width > kMostCutOff * area / height) {
    return fmt::format("its sides, {} x {}, are too unlike to cut {} x {} out of its middle",
                       size.width, size.height, width_, height_);
  }
  std::vector<uint8_t> whole(static_cast<size_t>(frames::frame_bytes(size)));
  decoder.copy(size.width, size.height, whole.data());
  const frames::Extent extent{static_cast<int>(width), static_cast<int>(height)};
  frames::resize_and_crop(
      {whole.data(), size.width, size.height, channels_}, extent,
      {middle(extent.width, width_), middle(extent.height, height_), width_, height_}, pixels);
  return {};
}

std::string ImageFiles::read(int64_t index, uint8_t* pixels) const {
  const auto i = static_cast<size_t>(index);
  const auto bytes =
      static_cast<size_t>(height_) * static_cast<size_t>(width_) * static_cast<size_t>(channels_);
  if (cache_ && is_cached_[i].load(std::memory_order_acquire)) {
    std::memcpy(pixels, cache_.get() + i * bytes, bytes);
    return {};
  }
  std::unique_ptr<frames::ImageDecoder> decoder = take_decoder();
  std::string why;
  if (decoder->decode(path_of(index), channels_, turns_, why)) why = decode(*decoder, pixels);
  MutexLock lock(mutex_);
  decoders_.push_back(std::move(decoder));
  if (why.empty() && cache_ && !is_cached_[i].load(std::memory_order_relaxed)) {
    std::memcpy(cache_.get() + i * bytes, pixels, bytes);
    is_cached_[i].store(true, std::memory_order_release);
  }
  return why;
}

model::Tensors ImageFiles::inputs(const std::vector<int64_t>& indices) const {
  at::Tensor result =
      at::empty(batch_shape(indices.size(), sample_.inputs.front().shape), at::kFloat);
  const auto plane = static_cast<size_t>(height_) * static_cast<size_t>(width_);
  std::vector<uint8_t> pixels(plane * static_cast<size_t>(channels_));
  float* out = result.data_ptr<float>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < size(), index, size());
    if (const std::string why = read(index, pixels.data()); !why.empty()) {
      throw ParseError(
          path_of(index).string(), 0,
          fmt::format("the image cannot be decoded: {} (bad samples can be skipped)", why));
    }
    for (int c = 0; c < channels_; ++c) {
      const PixelTable& table = table_of(channels_, c);
      const uint8_t* from = pixels.data() + c;
      for (size_t i = 0; i < plane; ++i, from += channels_) *out++ = table[*from];
    }
  }
  return {std::move(result)};
}

at::Tensor ImageFiles::targets(const std::vector<int64_t>& indices) const {
  at::Tensor result = at::empty({std::ssize(indices)}, at::kLong);
  auto* out = result.data_ptr<int64_t>();
  for (const int64_t index : indices) *out++ = images_.at(static_cast<size_t>(index)).label;
  return result;
}

std::vector<ImageFiles::BadImage> ImageFiles::bad_images() const {
  std::atomic<int64_t> next{0};
  Mutex mutex;
  std::vector<BadImage> bad;
  const auto check = [&] {
    std::vector<uint8_t> pixels(static_cast<size_t>(height_) * static_cast<size_t>(width_) *
                                static_cast<size_t>(channels_));
    for (int64_t i = next++; i < size(); i = next++) {
      const std::string why = read(i, pixels.data());
      if (why.empty()) continue;
      MutexLock lock(mutex);
      bad.push_back({i, fmt::format("{}: {}", printable(path_of(i).string()), why)});
    }
  };
  {
    std::vector<std::jthread> threads;
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    for (unsigned t = 1; t < cores; ++t) threads.emplace_back(check);
    check();
  }
  std::sort(bad.begin(), bad.end(),
            [](const BadImage& a, const BadImage& b) { return a.index < b.index; });
  return bad;
}

}  // namespace penstock::train
