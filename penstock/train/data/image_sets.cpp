#include "penstock/train/data/image_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/train/data/idx.h"
#include "penstock/train/data/image_dataset.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

constexpr std::string_view kFashionFolder = "/usr/share/datasets/fashion-mnist";
constexpr std::string_view kFashionPackage = "dataset-fashion-mnist";

/// Where a data set's IDX files are.
struct IdxFolder {
  std::string data;  ///< the data set's name
  std::filesystem::path path;
  std::string_view package;  ///< that installs them; may be empty

  [[noreturn]] void throw_missing(const std::string& what) const {
    std::string message =
        fmt::format("data set '{}': {} in folder '{}'", data, what, path.string());
    if (!package.empty()) message += fmt::format("; install it with: apt-get install {}", package);
    throw ConfigError(message);
  }

  /// The file under its standard name, with or without gzip.
  std::filesystem::path find(const std::string& file) const {
    std::error_code ignored;
    for (const char* suffix : {"", ".gz"}) {
      std::filesystem::path found = path / (file + suffix);
      if (std::filesystem::exists(found, ignored)) return found;
    }
    throw_missing(fmt::format("there is no {0} or {0}.gz", file));
  }
};

void check_labels(const std::vector<uint8_t>& labels, int64_t classes,
                  const std::filesystem::path& path) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= classes) {
      throw ParseError(path.string(), 0,
                       fmt::format("label {}: expected a class from 0 to {}, found {}", i,
                                   classes - 1, labels[i]));
    }
  }
}

LabelledImages read_images(const IdxFolder& folder, const std::string& part, int64_t classes) {
  const std::filesystem::path image_path = folder.find(part + "-images-idx3-ubyte");
  const std::filesystem::path label_path = folder.find(part + "-labels-idx1-ubyte");
  IdxData images = read_idx(image_path, 3);
  IdxData labels = read_idx(label_path, 1);
  if (images.bytes.empty()) {
    throw ParseError(
        image_path.string(), 0,
        fmt::format("expected at least one image, found sizes {}", fmt::join(images.sizes, " x ")));
  }
  if (images.sizes[0] != labels.sizes[0]) {
    throw ParseError(label_path.string(), 0,
                     fmt::format("expected {} labels, one for each image of {}, found {}",
                                 images.sizes[0], image_path.string(), labels.sizes[0]));
  }
  check_labels(labels.bytes, classes, label_path);
  return {.rows = images.sizes[1],
          .columns = images.sizes[2],
          .images = std::move(images.bytes),
          .labels = std::move(labels.bytes)};
}

void keep_first(LabelledImages& data, int64_t wanted, const char* part) {
  if (wanted == 0) return;
  const auto available = static_cast<int64_t>(data.labels.size());
  if (wanted > available)
    throw ConfigError(
        fmt::format("expected at most {} {} samples, which is all there are, found {}", available,
                    part, wanted));
  data.labels.resize(static_cast<size_t>(wanted));
  data.images.resize(static_cast<size_t>(wanted * data.bytes_per_image()));
  data.images.shrink_to_fit();
}

/// Images with a class each are all that IDX files hold.
void check_takes_images(const DataSpec& spec) {
  if (is_labelled(spec.sample)) return;
  throw ConfigError(
      fmt::format("the data set '{}' has an image and a class for each sample, the model and its "
                  "loss take {}; expected other data, such as FILE.npz",
                  spec.name, describe(spec.sample)));
}

ImageParts read_idx_parts(const IdxFolder& folder, int64_t classes) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder.path, ignored))
    folder.throw_missing("the data is missing; expected IDX files");
  ImageParts parts{read_images(folder, "train", classes), read_images(folder, "t10k", classes)};
  if (parts.train.rows != parts.test.rows || parts.train.columns != parts.test.columns) {
    throw ConfigError(fmt::format(
        "folder '{}': expected test images of {} x {} as in the training set, found {} x {}",
        folder.path.string(), parts.train.rows, parts.train.columns, parts.test.rows,
        parts.test.columns));
  }
  return parts;
}

DataSplit load_images(const DataSpec& spec, ImageParts parts, int64_t classes) {
  const ImageLayout layout = fit_images(parts.train.planes, parts.train.rows, parts.train.columns,
                                        spec.sample.inputs.front().shape);
  // Computed from all training images, also those that are not used, so a run on a part of the data
  // has the same normalisation.
  const std::vector<PixelTable> tables = normalising_tables(parts.train);
  keep_first(parts.train, spec.train_samples, "training");
  keep_first(parts.test, spec.test_samples, "test");
  return {
      std::make_shared<ImageDataset>(spec.name, std::move(parts.train), classes, layout, tables),
      std::make_shared<ImageDataset>(spec.name, std::move(parts.test), classes, layout, tables)};
}

}  // namespace

DataSplit load_fashion_mnist(const DataSpec& spec) {
  constexpr int64_t kClasses = 10;
  check_takes_images(spec);
  IdxFolder folder{spec.name, spec.folder, kFashionPackage};
  if (folder.path.empty()) folder.path = kFashionFolder;
  return load_images(spec, read_idx_parts(folder, kClasses), kClasses);
}

DataSplit load_idx(const DataSpec& spec) {
  if (spec.folder.empty()) {
    throw ConfigError(
        "data set 'idx': expected the folder that holds the four IDX files, found none");
  }
  check_takes_images(spec);
  const int64_t classes = spec.sample.targets.classes;
  return load_images(spec, read_idx_parts({spec.name, spec.folder, ""}, classes), classes);
}

DataSplit load_cifar(const DataSpec& spec, bool fine) {
  check_takes_images(spec);
  if (spec.folder.empty()) {
    throw ConfigError(fmt::format(
        "data set '{}': expected the folder that holds its binary version, found none", spec.name));
  }
  return load_images(spec, read_cifar(spec.folder, fine), fine ? 100 : 10);
}

}  // namespace penstock::train
