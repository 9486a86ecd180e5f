#include "penstock/train/data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <system_error>

#include "penstock/model/device/staging.h"
#include "penstock/train/data/file_data.h"
#include "penstock/train/data/idx.h"
#include "penstock/train/data/image_dataset.h"
#include "penstock/train/data/synthetic_dataset.h"
#include "penstock/util/error.h"
#include "penstock/util/printable.h"

namespace penstock::train {
namespace {

constexpr std::string_view kFashionFolder = "/usr/share/datasets/fashion-mnist";
constexpr std::string_view kFashionPackage = "dataset-fashion-mnist";

[[noreturn]] void throw_missing(const DataSpec& spec, const std::filesystem::path& folder,
                                const std::string& what) {
  std::string message =
      fmt::format("data set '{}': {} in folder '{}'", spec.name, what, folder.string());
  if (spec.name == "fashion-mnist")
    message += fmt::format("; install it with: apt-get install {}", kFashionPackage);
  throw ConfigError(message);
}

/// The file under its standard name, with or without gzip.
std::filesystem::path find_file(const DataSpec& spec, const std::filesystem::path& folder,
                                const std::string& file) {
  std::error_code ignored;
  for (const char* suffix : {"", ".gz"}) {
    const std::filesystem::path path = folder / (file + suffix);
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw_missing(spec, folder, fmt::format("there is no {0} or {0}.gz", file));
}

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

LabelledImages read_images(const DataSpec& spec, const std::filesystem::path& folder,
                           const std::string& part, int64_t classes) {
  const std::filesystem::path image_path = find_file(spec, folder, part + "-images-idx3-ubyte");
  const std::filesystem::path label_path = find_file(spec, folder, part + "-labels-idx1-ubyte");
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
                  "loss take {}; expected other data, as --data FILE.npz",
                  spec.name, describe(spec.sample)));
}

ImageParts read_idx_parts(const DataSpec& spec, int64_t classes) {
  const std::filesystem::path folder =
      spec.folder.empty() ? std::filesystem::path(kFashionFolder) : spec.folder;
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw_missing(spec, folder, "the data is missing; expected IDX files");
  ImageParts parts{read_images(spec, folder, "train", classes),
                   read_images(spec, folder, "t10k", classes)};
  if (parts.train.rows != parts.test.rows || parts.train.columns != parts.test.columns) {
    throw ConfigError(fmt::format(
        "folder '{}': expected test images of {} x {} as in the training set, found {} x {}",
        folder.string(), parts.train.rows, parts.train.columns, parts.test.rows,
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

DataSplit load_cifar(const DataSpec& spec) {
  check_takes_images(spec);
  if (spec.folder.empty()) {
    throw ConfigError(fmt::format(
        "data set '{}': expected the folder that holds its binary version (--data-folder), found "
        "none",
        spec.name));
  }
  const bool fine = spec.name == "cifar100";
  return load_images(spec, read_cifar(spec.folder, fine), fine ? 100 : 10);
}

DataSplit load_idx(const DataSpec& spec, int64_t classes) {
  check_takes_images(spec);
  return load_images(spec, read_idx_parts(spec, classes), classes);
}

DataSplit make_synthetic(const DataSpec& spec) {
  constexpr int64_t kTrainSamples = 2048;
  constexpr int64_t kTestSamples = 512;
  SampleSpec sample = spec.sample;
  if (is_labelled(sample) && sample.inputs.front().shape.empty())
    sample.inputs.front().shape = {1, 28, 28};
  const auto make = [&](int64_t samples, uint64_t part) {
    return std::make_shared<SyntheticDataset>(sample, samples, spec.seed, part);
  };
  return {make(spec.train_samples > 0 ? spec.train_samples : kTrainSamples, 0),
          make(spec.test_samples > 0 ? spec.test_samples : kTestSamples, 1)};
}

}  // namespace

model::Tensors Dataset::inputs_for_transfer(const std::vector<int64_t>& indices) const {
  return model::staged_for_transfer(inputs(indices));
}

int64_t Dataset::count_targets(const std::vector<int64_t>& indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  const model::TargetSpec& targets = sample().targets;
  if (!targets.needed || targets.type != at::kLong) return count;
  return std::accumulate(targets.shape.begin(), targets.shape.end(), count, std::multiplies<>());
}

DataSplit load_data(const DataSpec& spec) {
  if (spec.train_samples < 0 || spec.test_samples < 0) {
    throw ConfigError(fmt::format("expected at least 0 samples (0: all), found {}",
                                  std::min(spec.train_samples, spec.test_samples)));
  }
  constexpr int64_t kMostSamples = 1'000'000'000;
  if (std::max(spec.train_samples, spec.test_samples) > kMostSamples) {
    throw ConfigError(fmt::format("expected at most {} samples, found {}", kMostSamples,
                                  std::max(spec.train_samples, spec.test_samples)));
  }
  const model::TargetSpec& targets = spec.sample.targets;
  if (targets.needed && targets.type == at::kLong && targets.classes < 1) {
    throw ConfigError(fmt::format("data set '{}': expected at least 1 class, found {}", spec.name,
                                  targets.classes));
  }
  if (spec.name == "synthetic") return make_synthetic(spec);
  if (spec.name == "fashion-mnist") return load_idx(spec, 10);
  if (spec.name == "cifar10" || spec.name == "cifar100") return load_cifar(spec);
  if (spec.name == "idx") {
    if (spec.folder.empty())
      throw ConfigError(
          "data set 'idx': expected the folder that holds the four IDX files, found none");
    return load_idx(spec, targets.classes);
  }
  if (is_data_file(spec.name)) return load_file(spec);
  throw ConfigError(fmt::format(
      "unknown data set '{}': expected fashion-mnist, cifar10, cifar100, synthetic, idx, a file "
      "(.npz, .npy or .txt), or a folder of images",
      printable(spec.name)));
}

}  // namespace penstock::train
