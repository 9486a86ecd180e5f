#include "penstock/train/data/image_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "penstock/train/data/sample_shape.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::train {

ImageLayout fit_images(int64_t rows, int64_t columns, const model::Shape& shape) {
  ImageLayout layout{.rows = rows,
                     .columns = columns,
                     .shape = shape,
                     .channels = 1,
                     .height = rows,
                     .width = columns};
  if (shape.empty()) layout.shape = {1, rows, columns};
  if (shape.size() == 3) {
    layout.channels = shape[0];
    layout.height = shape[1];
    layout.width = shape[2];
  }
  const bool flat = shape.size() == 1 && shape[0] == rows * columns;
  const bool fits =
      shape.size() == 3 && layout.channels >= 1 && layout.height >= rows && layout.width >= columns;
  if (!shape.empty() && !flat && !fits) {
    throw ConfigError(fmt::format(
        "images of {0} x {1} cannot be made into samples of shape [{2}]; possible are [{3}] "
        "(flattened) and [channels, height, width] "
        "with at least 1 channel, height {0} and width {1} (zero-padded, the channel repeated)",
        rows, columns, fmt::join(shape, ", "), rows * columns));
  }
  sample_elements(layout.shape);
  layout.top = (layout.height - rows) / 2;
  layout.left = (layout.width - columns) / 2;
  return layout;
}

PixelTable normalising_table(const std::vector<uint8_t>& bytes) {
  // The sums are made from counts of byte values, so they are exact and every machine gets the same
  // table.
  std::array<int64_t, 256> counts{};
  for (const uint8_t byte : bytes) ++counts[byte];
  double sum = 0;
  double squares = 0;
  for (int value = 0; value < 256; ++value) {
    const auto count = static_cast<double>(counts[static_cast<size_t>(value)]);
    sum += count * value;
    squares += count * value * value;
  }
  const double n = std::max<double>(static_cast<double>(bytes.size()), 1);
  const double mean = sum / n;
  const double variance = std::max(squares / n - mean * mean, 0.0);
  const double deviation = variance > 0 ? std::sqrt(variance) : 1.0;
  PixelTable table{};
  for (int value = 0; value < 256; ++value)
    table[static_cast<size_t>(value)] = static_cast<float>((value - mean) / deviation);
  return table;
}

ImageDataset::ImageDataset(std::string name, std::vector<uint8_t> images,
                           std::vector<uint8_t> labels, int64_t classes, ImageLayout layout,
                           PixelTable table)
    : name_(std::move(name)),
      images_(std::move(images)),
      labels_(std::move(labels)),
      sample_(labelled(layout.shape, classes)),
      layout_(std::move(layout)),
      table_(table) {
  PENSTOCK_CHECK(static_cast<int64_t>(images_.size()) == size() * layout_.rows * layout_.columns,
                 images_.size(), size());
}

void ImageDataset::write_sample(const uint8_t* image, float* out) const {
  const int64_t plane = layout_.height * layout_.width;
  if (plane == layout_.rows * layout_.columns) {
    for (int64_t i = 0; i < plane; ++i) out[i] = table_[image[i]];
  } else {
    std::fill_n(out, plane, table_[0]);
    float* row = out + layout_.top * layout_.width + layout_.left;
    for (int64_t y = 0; y < layout_.rows; ++y, row += layout_.width, image += layout_.columns) {
      for (int64_t x = 0; x < layout_.columns; ++x) row[x] = table_[image[x]];
    }
  }
  for (int64_t c = 1; c < layout_.channels; ++c) std::copy_n(out, plane, out + c * plane);
}

model::Tensors ImageDataset::inputs(const std::vector<int64_t>& indices) const {
  at::Tensor result = at::empty(batch_shape(indices.size(), layout_.shape), at::kFloat);
  const int64_t elements = layout_.channels * layout_.height * layout_.width;
  float* out = result.data_ptr<float>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < size(), index, size());
    write_sample(images_.data() + index * layout_.rows * layout_.columns, out);
    out += elements;
  }
  return {std::move(result)};
}

at::Tensor ImageDataset::targets(const std::vector<int64_t>& indices) const {
  at::Tensor result = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  auto* out = result.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < size(), index, size());
    *out++ = labels_[static_cast<size_t>(index)];
  }
  return result;
}

}  // namespace penstock::train
