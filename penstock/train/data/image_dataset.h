// Grey images in memory as bytes; converted to normalised float32 when they are read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

/// How an image of `rows` x `columns` is placed in a sample.
struct ImageLayout {
  int64_t rows = 0;
  int64_t columns = 0;
  model::Shape shape;  ///< of the sample
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t top = 0;
  int64_t left = 0;
};

/// {channels, height, width} with the image in the middle of zeros, or {rows * columns}; an empty
/// shape is {1, rows, columns}. Throws ConfigError saying what is possible.
ImageLayout fit_images(int64_t rows, int64_t columns, const model::Shape& shape);

/// The value of each byte: (byte / 255 - mean) / deviation.
using PixelTable = std::array<float, 256>;

/// The table with the mean and deviation of these bytes.
PixelTable normalising_table(const std::vector<uint8_t>& bytes);

class ImageDataset : public Dataset {
 public:
  /// `images` holds labels.size() images. Labels must be below `classes`.
  ImageDataset(std::string name, std::vector<uint8_t> images, std::vector<uint8_t> labels,
               int64_t classes, ImageLayout layout, PixelTable table);

  std::string name() const override { return name_; }
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  const SampleSpec& sample() const override { return sample_; }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;

 private:
  void write_sample(const uint8_t* image, float* out) const;

  std::string name_;
  std::vector<uint8_t> images_;
  std::vector<uint8_t> labels_;
  SampleSpec sample_;
  ImageLayout layout_;
  PixelTable table_;
};

}  // namespace penstock::train
