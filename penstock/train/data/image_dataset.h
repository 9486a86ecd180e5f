// Images in memory as bytes, grey or in colours; converted to normalised float32 when they are
// read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"
#include "penstock/train/data/labelled_images.h"

namespace penstock::train {

/// How an image of `rows` x `columns` is placed in a sample.
struct ImageLayout {
  int64_t planes = 1;  ///< of an image: 1 (grey) or 3 (colours)
  int64_t rows = 0;
  int64_t columns = 0;
  model::Shape shape;  ///< of the sample
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t top = 0;
  int64_t left = 0;
};

/// {channels, height, width} with the image in the middle of zeros, or {planes * rows * columns};
/// an empty shape is {planes, rows, columns}. The plane of a grey image is repeated to all
/// channels. Throws ConfigError saying what is possible.
ImageLayout fit_images(int64_t planes, int64_t rows, int64_t columns, const model::Shape& shape);

/// The value of each byte: (byte / 255 - mean) / deviation.
using PixelTable = std::array<float, 256>;

/// The table of each plane, with the mean and deviation of its bytes in all these images.
std::vector<PixelTable> normalising_tables(const LabelledImages& images);

class ImageDataset : public Dataset {
 public:
  /// Labels must be below `classes`; a table for each plane.
  ImageDataset(std::string name, LabelledImages images, int64_t classes, ImageLayout layout,
               std::vector<PixelTable> tables);

  std::string name() const override { return name_; }
  int64_t size() const override { return static_cast<int64_t>(images_.labels.size()); }
  const SampleSpec& sample() const override { return sample_; }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;

 private:
  void write_plane(const uint8_t* image, const PixelTable& table, float* out) const;
  void write_sample(const uint8_t* image, float* out) const;

  std::string name_;
  LabelledImages images_;
  SampleSpec sample_;
  ImageLayout layout_;
  std::vector<PixelTable> tables_;
};

}  // namespace penstock::train
