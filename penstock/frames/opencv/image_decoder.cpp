#include "penstock/frames/opencv/image_decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <system_error>

#include "penstock/frames/natural_order.h"
#include "penstock/frames/opencv/jpeg_end.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/text/printable.h"

namespace penstock::frames {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxImageFileBytes = int64_t{256} << 20;
constexpr std::array<std::string_view, 12> kImageEndings = {".jpg",  ".jpeg", ".png",  ".bmp",
                                                            ".webp", ".tif",  ".tiff", ".ppm",
                                                            ".pgm",  ".pnm",  ".jp2",  ".jpe"};

}  // namespace

ImageDecoder::ImageDecoder(const fs::path& opencv_module)
    : opencv_(load_opencv(opencv_module)), picture_(make_picture(opencv_)) {}

bool ImageDecoder::decode(const fs::path& file, int channels, bool turns, std::string& why) {
  std::string content;
  try {
    content = read_file(file, kMaxImageFileBytes);
  } catch (const ConfigError& error) {
    why = error.what();
    return false;
  }
  if (content.empty()) {
    why = "it is empty";
    return false;
  }
  if (is_jpeg(content) && !has_jpeg_end(content)) {
    why = "its JPEG has no end: the file is cut off";
    return false;
  }
  OpencvError error;
  channels_ = channels;
  if (opencv_.decode(reinterpret_cast<const uint8_t*>(content.data()),
                     static_cast<int64_t>(content.size()), channels, turns, picture_.get(), &error))
    return true;
  why = text_of(error);
  return false;
}

FrameSize ImageDecoder::size() const {
  FrameSize size{.channels = channels_};
  opencv_.picture_size(picture_.get(), &size.width, &size.height);
  return size;
}

void ImageDecoder::copy(int width, int height, uint8_t* out) const {
  OpencvError error;
  if (!opencv_.copy_picture(picture_.get(), width, height, out, &error))
    throw RuntimeError("resizing an image failed: " + text_of(error));
}

bool is_image_name(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return !name.starts_with('.') &&
         std::find(kImageEndings.begin(), kImageEndings.end(), ending) != kImageEndings.end();
}

std::string image_endings() { return fmt::format("{}", fmt::join(kImageEndings, " ")); }

std::vector<std::string> image_names(const fs::path& folder, int64_t& others) {
  std::vector<std::string> names;
  others = 0;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (is_image_name(name) && entry->is_regular_file(ignored)) {
      names.push_back(name);
    } else {
      ++others;
    }
  }
  if (error) {
    throw ConfigError(
        fmt::format("cannot read folder '{}': {}", printable(folder.string()), error.message()));
  }
  std::sort(names.begin(), names.end(), is_naturally_before);
  return names;
}

}  // namespace penstock::frames
