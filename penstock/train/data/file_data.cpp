#include "penstock/train/data/file_data.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/train/data/image_files.h"
#include "penstock/train/data/npy.h"
#include "penstock/train/data/sample_subset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/data/token_dataset.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/process/log.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

using Arrays = std::map<std::string, at::Tensor>;
using DatasetPointer = std::shared_ptr<const Dataset>;

constexpr std::array<std::string_view, 5> kTargetNames = {"targets", "target", "labels", "label",
                                                          "y"};
constexpr size_t kMostReasons = 5;

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
    throw ConfigError(fmt::format(
        "samples that cannot be trained with (bad samples can be skipped):{}", first_reasons(bad)));
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

/// Reads a file, and says which one an error is about.
DataParts read_own(const std::string& file, const std::function<DataParts()>& read) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    throw ConfigError(fmt::format(
        "{}: expected a file of its own, found a pipe, a device or a folder", printable(file)));
  }
  return with_file(file, read);
}

}  // namespace

DataParts read_array_file(const DataSpec& spec, const std::string& file) {
  return read_own(file, [&]() -> DataParts {
    Arrays arrays = read_npz(file);
    const Arrays train = with_ending(arrays, "_train");
    const Arrays test = with_ending(arrays, "_test");
    if (train.empty()) return {.train = from_arrays(spec, file, std::move(arrays)), .test = {}};
    return {.train = from_arrays(spec, file, train),
            .test = test.empty() ? nullptr : from_arrays(spec, file, test)};
  });
}

DataParts read_token_file(const DataSpec& spec, const std::string& file) {
  return read_own(file, [&]() -> DataParts {
    return {.train = from_tokens(spec, file, read_npy(file)), .test = {}, .in_order = true};
  });
}

DataParts read_text_file(const DataSpec& spec, const std::string& file) {
  return read_own(file, [&]() -> DataParts {
    return {.train = from_tokens(spec, file, tokens_of_text(file)), .test = {}, .in_order = true};
  });
}

DataParts read_image_folder(const DataSpec& spec, const std::string& name) {
  const std::filesystem::path folder = name;
  const bool has_parts = is_folder(folder / "train");
  const std::filesystem::path train = has_parts ? folder / "train" : folder;
  std::filesystem::path test = spec.test_file;
  for (const char* part : {"test", "val"}) {
    if (has_parts && test.empty() && is_folder(folder / part)) test = folder / part;
  }
  const std::vector<std::string> classes = class_folders(train);
  return {.train = images_of(spec, train, classes),
          .test = test.empty() ? nullptr : images_of(spec, test, classes)};
}

}  // namespace penstock::train
