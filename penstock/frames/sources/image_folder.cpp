#include "penstock/frames/sources/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/frames/natural_order.h"
#include "penstock/util/error.h"
#include "penstock/util/process/log.h"
#include "penstock/util/process/steady_ns.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/printable.h"

namespace penstock::frames {

namespace fs = std::filesystem;

void ImageFolder::find_images() {
  int64_t others = 0;
  for (std::string& name : image_names(options_.folder, others))
    names_.push_back({.name = std::move(name)});
  if (names_.empty()) find_classes();
  if (classes_.size() == 1) {
    throw ConfigError(fmt::format(
        "folder '{0}' holds no images, and one folder of them, '{1}': expected two or more, one "
        "per class, or '{0}/{1}' itself",
        printable(options_.folder.string()), printable(classes_.front())));
  }
  if (names_.empty()) {
    throw ConfigError(
        fmt::format("folder '{}' holds no images: found {} other entries, expected "
                    "files that end with {}, or a folder of them per class",
                    printable(options_.folder.string()), others, image_endings()));
  }
  found_ = names_.size();
}

void ImageFolder::find_classes() {
  std::vector<std::vector<std::string>> images;
  std::error_code error;
  fs::directory_iterator entry(options_.folder, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (entry->is_directory(ignored) && !name.starts_with('.')) classes_.push_back(name);
  }
  std::sort(classes_.begin(), classes_.end(), is_naturally_before);
  size_t most = 0;
  std::erase_if(classes_, [&](const std::string& name) {
    int64_t others = 0;
    std::vector<std::string> found = image_names(options_.folder / name, others);
    if (found.empty()) return true;
    most = std::max(most, found.size());
    images.push_back(std::move(found));
    return false;
  });
  for (size_t k = 0; k < most; ++k) {
    for (size_t c = 0; c < images.size(); ++c) {
      if (k < images[c].size())
        names_.push_back({.name = (fs::path(classes_[c]) / images[c][k]).string(),
                          .label = static_cast<int>(c)});
    }
  }
}

ImageFolder::ImageFolder(ImageFolderOptions options)
    : options_(std::move(options)),
      decoder_(options_.opencv_module),
      size_{options_.width, options_.height, options_.channels} {
  find_images();
  const bool takes_first = size_.width == 0 && size_.height == 0;
  if (!takes_first) check_frame_size(size_, "the size of images");
  if (!find_next(Deadline::max())) {
    throw ParseError(options_.folder.string(), 0,
                     fmt::format("none of {} images can be decoded", found_));
  }
  if (takes_first) size_ = decoder_.size();
  check_frame_size(size_, fmt::format("image '{}'", printable(names_[next_name_].name)));
}

std::string ImageFolder::describe() const {
  const std::string classes =
      classes_.empty() ? "" : fmt::format(" in {}", plural(num_classes(), "class"));
  return fmt::format("{} images{} of {}, {}", found_, classes, printable(options_.folder.string()),
                     to_string(size_));
}

std::string ImageFolder::remarks() const {
  if (broken_ == 0) return {};
  return fmt::format("{} of {} images could not be decoded and were skipped, the first one is '{}'",
                     broken_, found_, printable(first_broken_));
}

bool ImageFolder::find_next(Deadline deadline) {
  while (!is_decoded_) {
    if (next_name_ == names_.size()) {
      if (!options_.repeats || names_.empty()) return false;
      next_name_ = 0;
    }
    std::string why;
    if (decoder_.decode(options_.folder / names_[next_name_].name, options_.channels,
                        /*turns=*/true, why)) {
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
  const std::string name = names_[next_name_].name;
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

int64_t ImageFolder::skip(int64_t count) {
  const auto images = static_cast<int64_t>(names_.size());
  const auto at = static_cast<int64_t>(next_name_);
  if (images == 0) return 0;
  const int64_t skipped = options_.repeats ? count : std::min(count, images - at);
  if (skipped <= 0) return 0;
  is_decoded_ = false;
  next_name_ = static_cast<size_t>(options_.repeats ? (at + skipped) % images : at + skipped);
  frames_ += skipped;
  return skipped;
}

SourceCounts ImageFolder::counts() const {
  return {.announced = static_cast<int64_t>(found_), .broken = broken_};
}

Next ImageFolder::next(Frame& frame, Deadline deadline) {
  if (!find_next(deadline)) return Next::Ended;
  if (!is_decoded_) return Next::Stalled;
  frame.pixels.resize(static_cast<size_t>(frame_bytes(size_)));
  decoder_.copy(size_.width, size_.height, frame.pixels.data());
  frame.number = frames_++;
  frame.captured_ns = steady_ns();
  frame.size = size_;
  frame.pixel_labels.clear();
  const int label = names_[next_name_].label;
  frame.label = label < 0 ? std::nullopt : std::optional<int>(label);
  is_decoded_ = false;
  ++next_name_;
  return Next::Ready;
}

}  // namespace penstock::frames
