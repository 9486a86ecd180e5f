#include "penstock/train/data/file_data.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/train/data/array_choice.h"
#include "penstock/train/data/image_files.h"
#include "penstock/train/data/image_table.h"
#include "penstock/train/data/image_tree.h"
#include "penstock/train/data/npy.h"
#include "penstock/train/data/sample_subset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/data/token_files.h"
#include "penstock/util/error.h"
#include "penstock/util/files/file_bytes.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/process/log.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

using DatasetPointer = std::shared_ptr<const Dataset>;

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
  } catch (const std::bad_alloc&) {
    throw RuntimeError(fmt::format("{}: there is not enough memory to read it", printable(file)));
  }
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

DatasetPointer inspected(const DataSpec& spec, const std::string& file,
                         const std::shared_ptr<const TensorDataset>& data) {
  const std::vector<TensorDataset::BadSample> bad =
      data->bad_samples(spec.skip_bad_samples ? static_cast<size_t>(data->size()) : kMostReasons);
  if (bad.empty()) return data;
  if (!spec.skip_bad_samples) {
    throw ConfigError(fmt::format(
        "samples that cannot be trained with (bad samples can be skipped):{}", first_reasons(bad)));
  }
  return without(data, file, bad);
}

/// Most models read tokens that a tokeniser has made, of which bytes say nothing.
void check_takes_bytes(const DataSpec& spec) {
  constexpr int64_t kMostRows = 1024;
  int64_t rows = 0;
  for (const model::InputSpec& input : spec.sample.inputs) rows = std::max(rows, input.values);
  if (rows == 0) rows = spec.sample.targets.classes;
  if (rows <= kMostRows || spec.bytes_are_tokens) return;
  throw ConfigError(
      fmt::format("the model knows {} tokens, and the bytes of a text are 256 others: expected its "
                  "tokens, as a tokeniser makes them, in a .npy or .bin file; bytes are taken only "
                  "where that is asked for",
                  rows));
}

DatasetPointer images_of(const DataSpec& spec, const std::filesystem::path& folder,
                         ImageTree tree) {
  const auto images =
      std::make_shared<ImageFiles>(folder, std::move(tree), spec.sample, spec.turns_images);
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
    Npz npz(file);
    ArrayParts parts = array_parts(npz);
    ArrayChoice train(spec, npz, std::move(parts.train));
    std::optional<ArrayChoice> test;
    if (!parts.test.empty()) test.emplace(spec, npz, std::move(parts.test));
    require_memory(saturating_add(train.memory(), test ? test->memory() : 0),
                   "its arrays are packed, and unpacked need");
    DataParts found{.train = inspected(spec, file, train.read(file)),
                    .test = test ? inspected(spec, file, test->read(file)) : nullptr,
                    .test_from = parts.test_from,
                    .left_out = std::move(parts.left_out)};
    for (const ArrayChoice* choice : {&train, test ? &*test : nullptr})
      if (choice != nullptr) found.left_out.add(choice->left_out());
    return found;
  });
}

DataParts read_token_file(const DataSpec& spec, const std::string& file) {
  return read_own(file, [&]() -> DataParts {
    return {.train = language_data(spec, file, read_npy(file)), .in_order = true};
  });
}

DataParts read_binary_file(const DataSpec& spec, const std::string& file) {
  return read_own(file, [&]() -> DataParts {
    return {.train = language_data(spec, file, read_tokens(file)), .in_order = true};
  });
}

DataParts read_text_file(const DataSpec& spec, const std::string& file) {
  return read_own(file, [&]() -> DataParts {
    check_takes_bytes(spec);
    const auto text = std::make_shared<const FileBytes>(file, kMostTokenBytes);
    return {.train = language_data(spec, file, tokens_in(text, 0, number_type("u1"))),
            .in_order = true};
  });
}

DataParts read_table_file(const DataSpec& spec, const std::string& file) {
  return read_own(file, [&]() -> DataParts {
    // A table of test images has the classes of the other one.
    const bool is_test = file == spec.test_file.string() && file != spec.name;
    std::vector<std::string> classes;
    if (is_test) classes = read_image_table(spec.name, spec.class_order).train.classes;
    ImageTable table = read_image_table(file, spec.class_order, classes);
    std::filesystem::path folder = std::filesystem::path(file).parent_path();
    if (folder.empty()) folder = ".";
    DataParts found{.test_from = table.test_from, .left_out = table.train.left_out};
    for (const std::string& name : table.train.classes) found.classes.push_back(printable(name));
    if (!table.test.images.empty()) found.test = images_of(spec, folder, std::move(table.test));
    found.train = images_of(spec, folder, std::move(table.train));
    return found;
  });
}

DataParts read_image_folder(const DataSpec& spec, const std::string& name) {
  FolderParts parts = folder_parts(name);
  if (!spec.test_file.empty()) parts.test = spec.test_file;
  DataParts found{.left_out = std::move(parts.left_out)};
  ImageTree train = read_image_tree(parts.train, spec.class_order);
  found.left_out.add(train.left_out);
  for (const std::string& of_class : train.classes) found.classes.push_back(printable(of_class));
  if (!parts.test.empty()) {
    ImageTree test = read_image_tree(parts.test, train.classes);
    found.left_out.add(test.left_out);
    found.test_from = parts.test.filename().string() + "/";
    found.test = images_of(spec, parts.test, std::move(test));
  }
  found.train = images_of(spec, parts.train, std::move(train));
  return found;
}

}  // namespace penstock::train
