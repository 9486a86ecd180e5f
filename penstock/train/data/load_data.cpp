#include "penstock/train/data/load_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/train/data/file_data.h"
#include "penstock/train/data/image_sets.h"
#include "penstock/train/data/sample_subset.h"
#include "penstock/train/data/synthetic_dataset.h"
#include "penstock/train/data/token_folder.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {
namespace {

using Reader = DataParts (*)(const DataSpec& spec, const std::string& name);

DataParts parts(DataSplit split) {
  return {.train = std::move(split.train), .test = std::move(split.test)};
}

/// In the order of kDataFormats.
constexpr std::array<Reader, kDataFormats.size()> kReaders = {
    [](const DataSpec& spec, const std::string&) { return parts(load_fashion_mnist(spec)); },
    [](const DataSpec& spec, const std::string&) { return parts(load_cifar(spec, false)); },
    [](const DataSpec& spec, const std::string&) { return parts(load_cifar(spec, true)); },
    [](const DataSpec& spec, const std::string&) { return parts(load_idx(spec)); },
    [](const DataSpec& spec, const std::string&) { return parts(make_synthetic(spec)); },
    read_array_file,
    read_token_file,
    read_binary_file,
    read_text_file,
    read_table_file,
    read_token_folder,
    read_image_folder};

DataFormat format_of(const std::string& name, std::span<const DataFormat> more) {
  for (const DataFormat& format : more) {
    if (format.row.is(name)) return format;
  }
  if (const DataFormatRow* row = find_data_format(name))
    return {*row, kReaders[static_cast<size_t>(row - kDataFormats.data())]};
  throw ConfigError(fmt::format("unknown data set '{}': expected one of {}", printable(name),
                                data_format_names()));
}

void check(const DataSpec& spec) {
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
}

/// The share of the samples that are for the test.
DataSplit divide(const std::shared_ptr<const Dataset>& all, double share, bool in_order) {
  std::vector<int64_t> order(static_cast<size_t>(all->size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!in_order) Rng(hash_name("test share")).shuffle(std::span<int64_t>(order));
  auto tests = static_cast<int64_t>(static_cast<double>(all->size()) * share);
  if (tests == 0 && share > 0 && all->size() > 1) tests = 1;
  const auto middle = order.end() - static_cast<std::ptrdiff_t>(tests);
  std::sort(order.begin(), middle);
  std::sort(middle, order.end());
  return {.train = std::make_shared<SampleSubset>(all, std::vector(order.begin(), middle)),
          .test = std::make_shared<SampleSubset>(all, std::vector(middle, order.end()))};
}

std::shared_ptr<const Dataset> first_of(std::shared_ptr<const Dataset> data, int64_t wanted,
                                        const char* part) {
  if (wanted == 0) return data;
  if (wanted > data->size()) {
    const std::string left_out = data->left_out().text();
    throw ConfigError(
        fmt::format("expected at most {} {} samples, which is all there are, found {}{}{}",
                    data->size(), part, wanted, left_out.empty() ? "" : "; left out: ", left_out));
  }
  std::vector<int64_t> indices(static_cast<size_t>(wanted));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return std::make_shared<SampleSubset>(std::move(data), std::move(indices));
}

/// "3 classes: 0 cat, 1 dog, 2 hen"; of many the first ones. Empty: they have no names.
std::string classes_text(const std::vector<std::string>& classes) {
  constexpr size_t kMostNames = 12;
  if (classes.empty()) return {};
  std::string text =
      fmt::format(" of {} {}", classes.size(), classes.size() == 1 ? "class" : "classes");
  for (size_t c = 0; c < std::min(kMostNames, classes.size()); ++c)
    text += fmt::format("{}{} {}", c == 0 ? ": " : ", ", c, classes[c]);
  return text + (classes.size() > kMostNames ? ", ..." : "");
}

/// How many classes the test samples have, where it is not all.
std::string test_classes_text(const Dataset& test, size_t classes) {
  if (classes == 0 || test.size() == 0) return {};
  std::vector<int64_t> all(static_cast<size_t>(test.size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  const at::Tensor targets = test.targets(all);
  const auto* const first = targets.data_ptr<int64_t>();
  const std::set<int64_t> found(first, first + targets.numel());
  return found.size() == classes ? "" : fmt::format(", {} of the classes", found.size());
}

std::string summary_of(const DataSpec& spec, const DataParts& parts, const std::string& test_from,
                       const DataSplit& split) {
  const std::string left_out = parts.left_out.text();
  return fmt::format("{}: {}{}; {} ({}{}){}{}\n", printable(spec.name),
                     plural(split.train->size(), "training sample"), classes_text(parts.classes),
                     plural(split.test->size(), "test sample"), printable(test_from),
                     test_classes_text(*split.test, parts.classes.size()),
                     left_out.empty() ? "" : "; left out: ", left_out);
}

/// The user's own data, with a part for the test.
DataSplit load_own(const DataFormat& format, const DataSpec& spec,
                   std::span<const DataFormat> more) {
  if (!(spec.test_share >= 0 && spec.test_share < 1)) {
    throw ConfigError(fmt::format(
        "the share of the test samples must be at least 0 and below 1, found {}", spec.test_share));
  }
  DataParts found = format.read(spec, spec.name);
  if (format.row.named == DataNamed::ByItsEnding && !spec.test_file.empty()) {
    const std::string file = spec.test_file.string();
    const DataFormat other = format_of(file, more);
    if (other.row.named != DataNamed::ByItsEnding)
      throw ConfigError(fmt::format("{}: expected a file with test samples", printable(file)));
    found.test = other.read(spec, file).train;
    found.test_from = spec.test_file.filename().string();
  }
  DataSplit split = found.test == nullptr
                        ? divide(found.train, spec.test_share, found.in_order || spec.in_order)
                        : DataSplit{.train = found.train, .test = found.test};
  split.train = first_of(split.train, spec.train_samples, "training");
  split.test = first_of(split.test, spec.test_samples, "test");
  split.classes = found.classes;
  split.translation = found.translation;
  split.summary = summary_of(
      spec, found, found.test ? found.test_from : fmt::format("a share of {}", spec.test_share),
      split);
  return split;
}

}  // namespace

DataSplit load_data(const DataSpec& spec, std::span<const DataFormat> more) {
  check(spec);
  const model::MemoryScope scope(MemoryKind::Inputs);
  const int64_t before = model::tensor_memory().now;
  const DataFormat format = format_of(spec.name, more);
  DataSplit split;
  if (format.row.is_own()) {
    split = load_own(format, spec, more);
  } else {
    DataParts found = format.read(spec, spec.name);
    split.train = std::move(found.train);
    split.test = std::move(found.test);
  }
  split.tensor_bytes = model::tensor_memory().now - before;
  return split;
}

}  // namespace penstock::train
