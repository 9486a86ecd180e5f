#include "penstock/exported/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/input_file.h"
#include "penstock/util/files/json.h"
#include "penstock/util/files/safetensors.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"

namespace penstock::exported {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kNewestVersion = 1;

/// What safetensors calls it; empty: it has no name there.
std::string_view dtype_name(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
      return "U8";
    case ScalarType::Char:
      return "I8";
    case ScalarType::Short:
      return "I16";
    case ScalarType::Int:
      return "I32";
    case ScalarType::Long:
      return "I64";
    case ScalarType::Half:
      return "F16";
    case ScalarType::Float:
      return "F32";
    case ScalarType::Double:
      return "F64";
    case ScalarType::Bool:
      return "BOOL";
    case ScalarType::BFloat16:
      return "BF16";
    case ScalarType::UInt16:
      return "U16";
    default:
      return "";
  }
}

std::string in_words(std::string_view dtype, const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += fmt::format("{}{}", text.empty() ? "" : " x ", size);
  return fmt::format("{} of {}", dtype, text.empty() ? "one number" : text);
}

struct WeightFile {
  std::string path;
  int64_t data_begin = 0;
  std::map<std::string, TensorInfo> tensors = {};
};

class Placer {
 public:
  Placer(const std::string& text, Program& program)
      : place_(program.path + ": penstock_weights.json"),
        document_(parse_json(text, place_)),
        root_(document_, place_),
        program_(program) {}

  void run() {
    check_format(root_, "weights", kNewestVersion);
    folder_ = fs::path(root_.at("folder").text());
    if (folder_.is_relative()) folder_ = fs::path(program_.path).parent_path() / folder_;
    const JsonReader tensors = root_.at("tensors");
    if (!tensors.raw().is_object()) tensors.fail("expected an object");
    for (const auto& [key, unused] : tensors.raw().items()) {
      const auto found = program_.tensors.find(key);
      if (found == program_.tensors.end()) tensors.at(key).fail("the program has no such tensor");
      put(key, tensors.at(key), found->second);
    }
  }

 private:
  void put(const std::string& key, const JsonReader& entry, StoredTensor& tensor) {
    if (tensor.num_bytes != 0) entry.fail("its values are in the .pt2 file, too: expected one");
    const WeightFile& file = opened(entry.at("file").text(), entry);
    const std::string name = entry.at("name").text();
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      throw ConfigError(fmt::format("'{}' has no tensor '{}', which '{}' reads as its '{}'",
                                    printable(file.path), printable(name), printable(program_.path),
                                    printable(key)));
    }
    const TensorInfo& info = found->second;
    std::vector<int64_t> sizes;
    for (const SymbolicInt& size : tensor.meta.sizes) sizes.push_back(size.value);
    if (info.dtype != dtype_name(tensor.meta.type) || info.shape != sizes) {
      throw ConfigError(fmt::format("'{}': the tensor '{}' is {}, the program '{}' takes {}",
                                    printable(file.path), printable(name),
                                    in_words(info.dtype, info.shape), printable(program_.path),
                                    in_words(dtype_name(tensor.meta.type), sizes)));
    }
    tensor.file = file.path;
    tensor.name = name;
    tensor.file_offset = file.data_begin + info.begin;
    tensor.num_bytes = info.end - info.begin;
    tensor.crc32 = static_cast<uint32_t>(entry.at("crc32").integer(0, UINT32_MAX));
    tensor.meta.storage_offset = {};
    tensor.meta.strides.assign(sizes.size(), {});
    int64_t stride = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      tensor.meta.strides[d].value = stride;
      stride = saturating_mul(stride, std::max<int64_t>(sizes[d], 1));
    }
  }

  /// With its header read and checked.
  const WeightFile& opened(const std::string& name, const JsonReader& entry) {
    const auto known = files_.find(name);
    if (known != files_.end()) return known->second;
    const bool is_plain =
        !name.empty() && name.find('/') == std::string::npos && name.ends_with(".safetensors");
    const auto listed = root_.at("files").find(name);
    if (!is_plain || !listed)
      entry.fail("expected the name of one of its files, which end in .safetensors");
    WeightFile file{.path = (folder_ / name).lexically_normal().string()};
    read_header(file, *listed);
    return files_.emplace(name, std::move(file)).first->second;
  }

  [[noreturn]] void is_another(const WeightFile& file, const std::string& why) const {
    throw ConfigError(
        fmt::format("'{}' {}: it is not the file beside which '{}' was exported; export again, or "
                    "bring the file back",
                    printable(file.path), why, printable(program_.path)));
  }

  void read_header(WeightFile& file, const JsonReader& listed) const {
    std::error_code error;
    if (!fs::exists(file.path, error)) {
      throw ConfigError(fmt::format(
          "'{}' is missing: the program '{}' has its weights there. Copy the folder of weights to "
          "this machine, to the same place beside the program, or export again",
          printable(file.path), printable(program_.path)));
    }
    InputFile in(file.path);
    const int64_t expected = listed.at("bytes").integer(0);
    const int64_t bytes = in.size().value_or(0);
    if (bytes != expected)
      is_another(file, fmt::format("has {} bytes, expected {}", bytes, expected));
    std::string text(static_cast<size_t>(std::min(bytes, kSafetensorsLengthBytes)), '\0');
    text.resize(in.read(text.data(), text.size()));
    const int64_t header_bytes = safetensors_header_bytes(text, bytes, file.path);
    std::string header(static_cast<size_t>(header_bytes), '\0');
    header.resize(in.read(header.data(), header.size()));
    if (crc32_of(text + header) != listed.at("header_crc32").integer(0, UINT32_MAX))
      is_another(file, "has another header");
    file.data_begin = kSafetensorsLengthBytes + header_bytes;
    for (TensorInfo& info : parse_safetensors_header(header, bytes - file.data_begin, file.path)) {
      std::string name = info.name;
      file.tensors.emplace(std::move(name), std::move(info));
    }
  }

  std::string place_;
  Json document_;
  JsonReader root_;
  Program& program_;
  fs::path folder_;
  std::map<std::string, WeightFile> files_;
};

}  // namespace

void place_weights(const std::string& text, Program& program) { Placer(text, program).run(); }

}  // namespace penstock::exported
