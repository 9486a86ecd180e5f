#include "penstock/train/data/file_data.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/train/data/image_files.h"
#include "penstock/train/data/npy.h"
#include "penstock/train/data/sample_subset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/data/token_dataset.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/log.h"
#include "penstock/util/printable.h"
#include "penstock/util/rng.h"

namespace penstock::train {

namespace {

using Arrays = std::map<std::string, at::Tensor>;
using DatasetPointer = std::shared_ptr<const Dataset>;

constexpr std::array<std::string_view, 5> kTargetNames = {"targets", "target", "labels", "label",
                                                          "y"};
constexpr size_t kMostReasons = 5;

enum class FileKind : uint8_t { Arrays, Tokens, Text };

std::optional<FileKind> kind_of(const std::string& name) {
  if (name.ends_with(".npz")) return FileKind::Arrays;
  if (name.ends_with(".npy")) return FileKind::Tokens;
  if (name.ends_with(".txt")) return FileKind::Text;
  return std::nullopt;
}

/// Says which file an error is about.
template <class Make>
auto with_file(const std::string& file, const Make& make) {
  try {
    return make();
  } catch (const ParseError&) {
    throw;  // names it
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    if (text.find(printable(file)) != std::string::npos) throw;
    throw ConfigError(fmt::format("{}: {}", printable(file), text));
  }
}

std::string names_of(const Arrays& arrays) {
  std::string text;
  for (const auto& [name, array] : arrays) {
    const model::Shape shape(array.sizes().begin(), array.sizes().end());
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", printable(name),
                        describe(array.scalar_type(), shape));
  }
  return text.empty() ? "none" : text;
}

/// The array of that name, which is taken out.
at::Tensor taken(Arrays& arrays, std::string_view name) {
  const auto found = arrays.find(std::string(name));
  if (found == arrays.end()) return {};
  at::Tensor array = std::move(found->second);
  arrays.erase(found);
  return array;
}

/// Of the first bad samples, a line each.
template <class Bad>
std::string first_reasons(const std::vector<Bad>& bad) {
  std::string text;
  for (size_t i = 0; i < std::min(kMostReasons, bad.size()); ++i) text += "\n  " + bad[i].reason;
  return text;
}

/// The data without its bad samples, of which the user is told; `bad` is in the order of indices.
template <class Bad>
DatasetPointer without(const DatasetPointer& data, const std::string& file,
                       const std::vector<Bad>& bad) {
  if (bad.empty()) return data;
  log_warning(fmt::format("{}: {} of {} samples are left out:{}{}", printable(file), bad.size(),
                          data->size(), first_reasons(bad),
                          bad.size() > kMostReasons ? "\n  ..." : ""));
  std::vector<int64_t> good;
  auto next = bad.begin();
  for (int64_t i = 0; i < data->size(); ++i) {
    if (next != bad.end() && next->index == i)
      ++next;
    else
      good.push_back(i);
  }
  if (good.empty()) throw ConfigError("no sample is left");
  return std::make_shared<SampleSubset>(data, std::move(good));
}

DatasetPointer from_arrays(const DataSpec& spec, const std::string& file, Arrays arrays) {
  const std::string available = names_of(arrays);
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(
        fmt::format("there is no array {}; the model and its loss take {}; the file "
                    "has {}",
                    what, describe(spec.sample), available));
  };
  model::Tensors inputs;
  for (const model::InputSpec& input : spec.sample.inputs)
    inputs.push_back(taken(arrays, input.name));
  at::Tensor targets;
  std::string_view named;
  for (const std::string_view name : kTargetNames) {
    at::Tensor found = taken(arrays, name);
    if (!found.defined()) continue;
    if (targets.defined() && spec.sample.targets.needed) {
      throw ConfigError(
          fmt::format("expected one array of targets, found '{}' and '{}', which both might be; "
                      "the file has {}",
                      named, name, available));
    }
    targets = std::move(found);
    named = name;
  }
  if (inputs.size() == 1 && !inputs.front().defined() && arrays.size() == 1)
    inputs.front() = arrays.begin()->second;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) refuse(fmt::format("'{}'", printable(spec.sample.inputs[i].name)));
  }
  if (spec.sample.targets.needed && !targets.defined())
    refuse("of targets ('targets', 'labels' or 'y')");
  const auto data = std::make_shared<TensorDataset>(file, spec.sample, std::move(inputs),
                                                    std::move(targets), spec.ignore_index);
  const std::vector<TensorDataset::BadSample> bad =
      data->bad_samples(spec.skip_bad_samples ? static_cast<size_t>(data->size()) : kMostReasons);
  if (bad.empty()) return data;
  if (!spec.skip_bad_samples) {
    throw ConfigError(
        fmt::format("samples that cannot be trained with (--bad-samples skip leaves "
                    "them out):{}",
                    first_reasons(bad)));
  }
  return without(data, file, bad);
}

/// The arrays whose names end so, without that end.
Arrays with_ending(const Arrays& arrays, std::string_view ending) {
  Arrays result;
  for (const auto& [name, array] : arrays) {
    if (name.ends_with(ending)) result.emplace(name.substr(0, name.size() - ending.size()), array);
  }
  return result;
}

DatasetPointer from_tokens(const DataSpec& spec, const std::string& file,
                           const at::Tensor& tokens) {
  if (tokens.dim() != 1 || !at::isIntegralType(tokens.scalar_type(), /*includeBool=*/false)) {
    const model::Shape shape(tokens.sizes().begin(), tokens.sizes().end());
    throw ConfigError(
        fmt::format("expected one row of tokens (whole numbers), found {}; arrays of samples come "
                    "as .npz, with their names",
                    describe(tokens.scalar_type(), shape)));
  }
  return std::make_shared<TokenDataset>(file, spec.sample, tokens, spec.ignore_index);
}

at::Tensor tokens_of_text(const std::string& file) {
  const auto text = std::make_shared<std::string>(read_file(file, int64_t{1} << 36));
  return at::from_blob(
      text->data(), {static_cast<int64_t>(text->size())}, [text](void*) {},
      at::TensorOptions().dtype(at::kByte));
}

/// What a file has: all of it, or two parts.
struct Parts {
  DatasetPointer train;
  DatasetPointer test;
  bool in_order = false;  ///< neighbours belong together
};

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

DatasetPointer images_of(const DataSpec& spec, const std::filesystem::path& folder,
                         const std::vector<std::string>& classes) {
  const auto images = std::make_shared<ImageFiles>(folder, spec.sample, classes);
  if (!spec.skip_bad_samples) return images;
  return with_file(folder.string(),
                   [&] { return without(images, folder.string(), images->bad_images()); });
}

Parts read_folder(const DataSpec& spec) {
  const std::filesystem::path folder = spec.name;
  const bool has_parts = is_folder(folder / "train");
  const std::filesystem::path train = has_parts ? folder / "train" : folder;
  std::filesystem::path test = spec.test_file;
  for (const char* name : {"test", "val"}) {
    if (has_parts && test.empty() && is_folder(folder / name)) test = folder / name;
  }
  const std::vector<std::string> classes = class_folders(train);
  return {.train = images_of(spec, train, classes),
          .test = test.empty() ? nullptr : images_of(spec, test, classes)};
}

Parts read_parts(const DataSpec& spec, const std::string& file) {
  const auto kind = kind_of(file);
  if (!kind) {
    throw ConfigError(
        fmt::format("{}: expected a file of arrays (.npz), tokens (.npy) or text "
                    "(.txt)",
                    printable(file)));
  }
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    throw ConfigError(fmt::format(
        "{}: expected a file of its own, found a pipe, a device or a folder", printable(file)));
  }
  return with_file(file, [&]() -> Parts {
    if (*kind == FileKind::Tokens)
      return {.train = from_tokens(spec, file, read_npy(file)), .test = {}, .in_order = true};
    if (*kind == FileKind::Text)
      return {.train = from_tokens(spec, file, tokens_of_text(file)), .test = {}, .in_order = true};
    Arrays arrays = read_npz(file);
    const Arrays train = with_ending(arrays, "_train");
    const Arrays test = with_ending(arrays, "_test");
    if (train.empty()) return {.train = from_arrays(spec, file, std::move(arrays)), .test = {}};
    return {.train = from_arrays(spec, file, train),
            .test = test.empty() ? nullptr : from_arrays(spec, file, test)};
  });
}

/// The share of the samples that are for the test.
Parts split(const DatasetPointer& all, double share, bool in_order) {
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

DatasetPointer first_of(DatasetPointer data, int64_t wanted, const char* part) {
  if (wanted == 0) return data;
  if (wanted > data->size()) {
    throw ConfigError(
        fmt::format("expected at most {} {} samples, which is all there are, found {}",
                    data->size(), part, wanted));
  }
  std::vector<int64_t> indices(static_cast<size_t>(wanted));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return std::make_shared<SampleSubset>(std::move(data), std::move(indices));
}

}  // namespace

bool is_data_file(const std::string& name) { return kind_of(name).has_value() || is_folder(name); }

DataSplit load_file(const DataSpec& spec) {
  if (!(spec.test_share >= 0 && spec.test_share < 1)) {
    throw ConfigError(fmt::format(
        "the share of the test samples must be at least 0 and below 1, found {}", spec.test_share));
  }
  const bool images = is_folder(spec.name);
  Parts parts = images ? read_folder(spec) : read_parts(spec, spec.name);
  if (!images && !spec.test_file.empty())
    parts.test = read_parts(spec, spec.test_file.string()).train;
  if (parts.test == nullptr) parts = split(parts.train, spec.test_share, parts.in_order);
  return {first_of(parts.train, spec.train_samples, "training"),
          first_of(parts.test, spec.test_samples, "test")};
}

}  // namespace penstock::train
