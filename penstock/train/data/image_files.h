// Images in a folder per class, decoded when they are read.
//
//   FOLDER/cat/1.jpg   FOLDER/cat/2.jpg   FOLDER/dog/1.png
//   ImageFiles images("FOLDER", read_image_tree("FOLDER", ClassOrder::Text), sample);
//
// An image is scaled until it covers the model's height and width, and its middle is taken: the
// pixels of torchvision's Resize and CenterCrop of Pillow's images. Colours are normalised with the
// means and deviations of ImageNet, as torchvision's models expect; grey with the averages of these
// over the colours.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "penstock/frames/opencv/image_decoder.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/data/image_tree.h"
#include "penstock/util/process/mutex.h"

namespace penstock::train {

class ImageFiles : public Dataset {
 public:
  /// `tree`: of read_image_tree(folder). Of at most kMostCachedBytes, pixels stay in memory once
  /// they are decoded. `turns`: as cameras were held (EXIF). Throws ConfigError: the model takes no
  /// images of 1 or 3 channels with a class each, OpenCV is missing.
  ImageFiles(const std::filesystem::path& folder, ImageTree tree, const SampleSpec& wanted,
             bool turns = false, const std::filesystem::path& opencv_module = {});

  std::string name() const override { return folder_.string(); }
  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  const SampleSpec& sample() const override { return sample_; }
  /// Throws ParseError naming an image that cannot be decoded.
  model::Tensors inputs(const std::vector<int64_t>& indices) const override;
  at::Tensor targets(const std::vector<int64_t>& indices) const override;
  bool is_slow() const override { return true; }

  struct BadImage {
    int64_t index = 0;
    std::string reason;  ///< with the file's name
  };
  /// Decodes all images on all cores; those that cannot be.
  std::vector<BadImage> bad_images() const;

  static constexpr int64_t kMostCachedBytes = int64_t{1} << 30;

 private:
  std::filesystem::path path_of(int64_t index) const;
  /// Writes [height, width, channels], from memory if it was decoded before. Empty, or why it
  /// cannot be decoded.
  std::string read(int64_t index, uint8_t* pixels) const;
  std::string decode(const frames::ImageDecoder& decoder, uint8_t* pixels) const;
  std::unique_ptr<frames::ImageDecoder> take_decoder() const;

  std::filesystem::path folder_;
  std::filesystem::path opencv_module_;
  bool turns_ = false;
  std::vector<ImageTree::Image> images_;
  SampleSpec sample_;
  int channels_ = 3;
  int height_ = 0;
  int width_ = 0;
  /// Of every image [height, width, channels]; null: they are too many.
  std::unique_ptr<uint8_t[]> cache_;
  mutable std::vector<std::atomic<bool>> is_cached_;
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<frames::ImageDecoder>> decoders_ GUARDED_BY(mutex_);
};

}  // namespace penstock::train
