#include <fmt/format.h>

#include <string_view>
#include <system_error>

#include "penstock/train/data/labelled_images.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPlanes = 3;
constexpr int64_t kImageBytes = kPlanes * kSide * kSide;
constexpr int64_t kMaxFileBytes = int64_t{1} << 32;

/// Adds a file's records: labels (a coarse one before the fine one), then the image.
void add_file(const std::filesystem::path& path, bool fine, LabelledImages& images) {
  const size_t labels = fine ? 2 : 1;
  const int64_t classes = fine ? 100 : 10;
  const std::string bytes = read_file(path, kMaxFileBytes);
  const size_t record = labels + kImageBytes;
  if (bytes.empty() || bytes.size() % record != 0) {
    throw ParseError(printable(path.string()), 0,
                     fmt::format("expected images of {} bytes each with {}, found {} bytes", record,
                                 fine ? "their two labels" : "their label", bytes.size()));
  }
  for (size_t at = 0; at < bytes.size(); at += record) {
    const auto label = static_cast<uint8_t>(bytes[at + labels - 1]);
    if (label >= classes) {
      throw ParseError(printable(path.string()), 0,
                       fmt::format("image {}: expected a class from 0 to {}, found {}", at / record,
                                   classes - 1, label));
    }
    images.labels.push_back(label);
    images.images.insert(images.images.end(),
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + labels),
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + record));
  }
}

LabelledImages read_part(const std::filesystem::path& folder, bool fine,
                         std::initializer_list<const char*> files) {
  LabelledImages images{
      .planes = kPlanes, .rows = kSide, .columns = kSide, .images = {}, .labels = {}};
  for (const char* file : files) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / file, ignored)) {
      throw ConfigError(fmt::format(
          "folder '{}': there is no {}; expected the binary version of CIFAR-{}, unpacked",
          printable(folder.string()), file, fine ? 100 : 10));
    }
    add_file(folder / file, fine, images);
  }
  return images;
}

}  // namespace

ImageParts read_cifar(const std::filesystem::path& folder, bool fine) {
  if (fine) return {read_part(folder, fine, {"train.bin"}), read_part(folder, fine, {"test.bin"})};
  return {read_part(folder, fine,
                    {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                     "data_batch_5.bin"}),
          read_part(folder, fine, {"test_batch.bin"})};
}

}  // namespace penstock::train
