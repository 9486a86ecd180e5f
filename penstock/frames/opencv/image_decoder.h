// Image files as pixels.
//
//   ImageDecoder decoder;
//   std::string why;
//   if (decoder.decode("cat.jpg", kRgb, true, why)) decoder.copy(32, 32, bytes);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/frames/frame.h"
#include "penstock/frames/opencv/opencv_loader.h"

namespace penstock::frames {

/// One picture at a time; not thread-safe.
class ImageDecoder {
 public:
  /// Loads OpenCV's module; an empty path: the one beside the program. Throws as load_opencv().
  explicit ImageDecoder(const std::filesystem::path& opencv_module = {});

  /// Whether the file is an image, which is then the picture; otherwise `why` says what is wrong.
  /// `channels`: kGrey or kRgb. `turns`: as its camera was held, which it may note (EXIF).
  bool decode(const std::filesystem::path& file, int channels, bool turns, std::string& why);
  /// Of the picture.
  FrameSize size() const;
  /// Writes [height, width, channels], resized without regard to the aspect. Throws RuntimeError.
  void copy(int width, int height, uint8_t* out) const;

 private:
  const OpencvInterface& opencv_;
  PictureHandle picture_;
  int channels_ = kRgb;
};

/// Whether a file's name ends like that of an image (.png, .jpg, ...) and does not begin with a
/// dot.
bool is_image_name(const std::string& name);
/// The endings, for messages.
std::string image_endings();

/// The names of the regular files in `folder`, not in folders in it, that are image names, in the
/// order in which people count (natural_order.h). `others`: how many entries are none. Throws
/// ConfigError when the folder cannot be read.
std::vector<std::string> image_names(const std::filesystem::path& folder, int64_t& others);

}  // namespace penstock::frames
