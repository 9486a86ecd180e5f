// Images as bytes with a class each, as data sets of images hold them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::train {

struct LabelledImages {
  int64_t planes = 1;  ///< 1: grey; 3: red, green and blue
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<uint8_t> images;  ///< [images][planes][rows][columns]
  std::vector<uint8_t> labels;

  int64_t bytes_per_image() const { return planes * rows * columns; }
};

struct ImageParts {
  LabelledImages train;
  LabelledImages test;
};

/// The binary version of CIFAR-10 (`fine` false: data_batch_1.bin to data_batch_5.bin and
/// test_batch.bin) or CIFAR-100 with its 100 fine labels (train.bin and test.bin), unpacked in
/// `folder`. Throws ConfigError (a missing folder or file), ParseError naming the file: a length
/// that is no whole number of images, a label out of range.
ImageParts read_cifar(const std::filesystem::path& folder, bool fine);

}  // namespace penstock::train
