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

ImageLayout fit_images(int64_t planes, int64_t rows, int64_t columns, const model::Shape& shape) {
  ImageLayout layout{.planes = planes,
                     .rows = rows,
                     .columns = columns,
                     .shape = shape,
                     .channels = planes,
                     .height = rows,
                     .width = columns};
  if (shape.empty()) layout.shape = {planes, rows, columns};
  if (shape.size() == 3) {
    layout.channels = shape[0];
    layout.height = shape[1];
    layout.width = shape[2];
  }
  const bool flat = shape.size() == 1 && shape[0] == planes * rows * columns;
  const bool has_channels = planes == 1 ? layout.channels >= 1 : layout.channels == planes;
  const bool fits =
      shape.size() == 3 && has_channels && layout.height >= rows && layout.width >= columns;
  if (!shape.empty() && !flat && !fits) {
    throw ConfigError(fmt::format(
        "{4} of {0} x {1} cannot be made into samples of shape [{2}]; possible are [{3}] "
        "(flattened) and [channels, height, width] "
        "with {5}, height {0} and width {1} (zero-padded{6})",
        rows, columns, fmt::join(shape, ", "), planes * rows * columns,
        planes == 1 ? "images" : "colour images",
        planes == 1 ? "at least 1 channel" : fmt::format("{} channels, at least", planes),
        planes == 1 ? ", the channel repeated" : ""));
  }
  sample_elements(layout.shape);
  layout.top = (layout.height - rows) / 2;
  layout.left = (layout.width - columns) / 2;
  return layout;
}

std::vector<PixelTable> normalising_tables(const LabelledImages& images) {
  // The sums are made from counts of byte values, so they are exact and every machine gets the same
  // table.
  std::vector<std::array<int64_t, 256>> counts(static_cast<size_t>(images.planes));
  const int64_t plane = images.rows * images.columns;
  for (size_t at = 0; at < images.images.size(); ++at) {
    const size_t number = at / static_cast<size_t>(plane) % counts.size();
    ++counts[number][images.images[at]];
  }
  std::vector<PixelTable> tables;
  for (const std::array<int64_t, 256>& of_plane : counts) {
    double n = 0;
    double sum = 0;
    double squares = 0;
    for (int value = 0; value < 256; ++value) {
      const auto count = static_cast<double>(of_plane[static_cast<size_t>(value)]);
      n += count;
      sum += count * value;
      squares += count * value * value;
    }
    n = std::max(n, 1.0);
    const double mean = sum / n;
    const double variance = std::max(squares / n - mean * mean, 0.0);
    const double deviation = variance > 0 ? std::sqrt(variance) : 1.0;
    PixelTable& table = tables.emplace_back();
    for (int value = 0; value < 256; ++value)
      table[static_cast<size_t>(value)] = static_cast<float>((value - mean) / deviation);
  }
  return tables;
}

ImageDataset::ImageDataset(std::string name, LabelledImages images, int64_t classes,
                           ImageLayout layout, std::vector<PixelTable> tables)
    : name_(std::move(name)),
      images_(std::move(images)),
      sample_(labelled(layout.shape, classes)),
      layout_(std::move(layout)),
      tables_(std::move(tables)) {
  PENSTOCK_CHECK(static_cast<int64_t>(images_.images.size()) == size() * images_.bytes_per_image(),
                 images_.images.size(), size());
  PENSTOCK_CHECK(static_cast<int64_t>(tables_.size()) == layout_.planes, tables_.size());
}

void ImageDataset::write_plane(const uint8_t* image, const PixelTable& table, float* out) const {
  const int64_t plane = layout_.height * layout_.width;
  if (plane == layout_.rows * layout_.columns) {
    for (int64_t i = 0; i < plane; ++i) out[i] = table[image[i]];
    return;
  }
  std::fill_n(out, plane, table[0]);
  float* row = out + layout_.top * layout_.width + layout_.left;
  for (int64_t y = 0; y < layout_.rows; ++y, row += layout_.width, image += layout_.columns) {
    for (int64_t x = 0; x < layout_.columns; ++x) row[x] = table[image[x]];
  }
}

void ImageDataset::write_sample(const uint8_t* image, float* out) const {
  const int64_t plane = layout_.height * layout_.width;
  for (int64_t c = 0; c < layout_.planes; ++c) {
    write_plane(image + c * layout_.rows * layout_.columns, tables_[static_cast<size_t>(c)],
                out + c * plane);
  }
  for (int64_t c = layout_.planes; c < layout_.channels; ++c)
    std::copy_n(out, plane, out + c * plane);
}

model::Tensors ImageDataset::inputs(const std::vector<int64_t>& indices) const {
  at::Tensor result = at::empty(batch_shape(indices.size(), layout_.shape), at::kFloat);
  const int64_t elements = layout_.channels * layout_.height * layout_.width;
  float* out = result.data_ptr<float>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < size(), index, size());
    write_sample(images_.images.data() + index * images_.bytes_per_image(), out);
    out += elements;
  }
  return {std::move(result)};
}

at::Tensor ImageDataset::targets(const std::vector<int64_t>& indices) const {
  at::Tensor result = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  auto* out = result.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < size(), index, size());
    *out++ = images_.labels[static_cast<size_t>(index)];
  }
  return result;
}

}  // namespace penstock::train
