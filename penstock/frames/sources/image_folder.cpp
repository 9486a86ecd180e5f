#include "penstock/frames/sources/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "penstock/frames/natural_order.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/log.h"
#include "penstock/util/printable.h"
#include "penstock/util/steady_ns.h"

namespace penstock::frames {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxImageFileBytes = int64_t{256} << 20;
constexpr std::array<std::string_view, 12> kImageEndings = {".jpg",  ".jpeg", ".png",  ".bmp",
                                                            ".webp", ".tif",  ".tiff", ".ppm",
                                                            ".pgm",  ".pnm",  ".jp2",  ".jpe"};

bool is_image_name(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return !name.starts_with('.') &&
         std::find(kImageEndings.begin(), kImageEndings.end(), ending) != kImageEndings.end();
}

std::vector<std::string> image_names(const fs::path& folder) {
  std::vector<std::string> names;
  int64_t others = 0;
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
  if (names.empty()) {
    throw ConfigError(
        fmt::format("folder '{}' holds no images: found {} other entries, expected "
                    "files that end with {}",
                    printable(folder.string()), others, fmt::join(kImageEndings, " ")));
  }
  std::sort(names.begin(), names.end(), is_naturally_before);
  return names;
}

}  // namespace

ImageFolder::ImageFolder(ImageFolderOptions options)
    : options_(std::move(options)),
      opencv_(load_opencv(options_.opencv_module)),
      picture_(make_picture(opencv_)),
      size_{options_.width, options_.height, options_.channels},
      names_(image_names(options_.folder)),
      found_(names_.size()) {
  const bool takes_first = size_.width == 0 && size_.height == 0;
  if (!takes_first) check_frame_size(size_, "the size of images");
  if (!find_next(Deadline::max())) {
    throw ParseError(options_.folder.string(), 0,
                     fmt::format("none of {} images can be decoded", found_));
  }
  if (takes_first) opencv_.picture_size(picture_.get(), &size_.width, &size_.height);
  check_frame_size(size_, fmt::format("image '{}'", printable(names_[next_name_])));
}

std::string ImageFolder::describe() const {
  return fmt::format("{} images of {}, {}", found_, printable(options_.folder.string()),
                     to_string(size_));
}

std::string ImageFolder::remarks() const {
  if (broken_ == 0) return {};
  return fmt::format("{} of {} images could not be decoded and were skipped, the first one is '{}'",
                     broken_, found_, printable(first_broken_));
}

bool ImageFolder::decode(const std::string& name, std::string& why) {
  std::string content;
  try {
    content = read_file(options_.folder / name, kMaxImageFileBytes);
  } catch (const ConfigError& error) {
    why = error.what();
    return false;
  }
  OpencvError error;
  if (content.empty()) {
    why = "it is empty";
    return false;
  }
  if (opencv_.decode(reinterpret_cast<const uint8_t*>(content.data()),
                     static_cast<int64_t>(content.size()), options_.channels, picture_.get(),
                     &error))
    return true;
  why = text_of(error);
  return false;
}

bool ImageFolder::find_next(Deadline deadline) {
  while (!is_decoded_) {
    if (next_name_ == names_.size()) {
      if (!options_.repeats || names_.empty()) return false;
      next_name_ = 0;
    }
    std::string why;
    if (decode(names_[next_name_], why)) {
      is_decoded_ = true;
      broken_in_row_ = 0;
    } else {
      leave_out(why);
      if (std::chrono::steady_clock::now() >= deadline) break;
    }
  }
  return true;
}

void ImageFolder::leave_out(const std::string& why) {
  const std::string name = names_[next_name_];
  const std::string path = printable((options_.folder / name).string());
  ++broken_in_row_;
  if (++broken_ == 1) first_broken_ = name;
  if (!options_.skips_broken)
    throw ParseError(path, 0, fmt::format("the image cannot be decoded: {}", why));
  if (broken_in_row_ >= options_.max_broken_in_row) {
    throw ParseError(
        path, 0,
        fmt::format("the image cannot be decoded: {}; {} in a row could not", why, broken_in_row_));
  }
  log_warning(fmt::format("{}: the image cannot be decoded and is skipped: {}", path, why));
  names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(next_name_));
}

Next ImageFolder::next(Frame& frame, Deadline deadline) {
  if (!find_next(deadline)) return Next::Ended;
  if (!is_decoded_) return Next::Stalled;
  frame.pixels.resize(static_cast<size_t>(frame_bytes(size_)));
  OpencvError error;
  if (!opencv_.copy_picture(picture_.get(), size_.width, size_.height, frame.pixels.data(), &error))
    throw RuntimeError(fmt::format("resizing image '{}' failed: {}", printable(names_[next_name_]),
                                   text_of(error)));
  frame.number = frames_++;
  frame.captured_ns = steady_ns();
  frame.size = size_;
  frame.pixel_labels.clear();
  frame.label.reset();
  is_decoded_ = false;
  ++next_name_;
  return Next::Ready;
}

}  // namespace penstock::frames
