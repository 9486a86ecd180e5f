#include "penstock/util/files/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

std::optional<int64_t> dtype_bytes(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, int64_t>, 16> kTypes{{{"BOOL", 1},
                                                                                {"U8", 1},
                                                                                {"I8", 1},
                                                                                {"U16", 2},
                                                                                {"I16", 2},
                                                                                {"F16", 2},
                                                                                {"BF16", 2},
                                                                                {"U32", 4},
                                                                                {"I32", 4},
                                                                                {"F32", 4},
                                                                                {"U64", 8},
                                                                                {"I64", 8},
                                                                                {"F64", 8},
                                                                                {"F8_E4M3", 1},
                                                                                {"F8_E5M2", 1},
                                                                                {"C64", 8}}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return std::nullopt;
}

/// Nothing when the type is unknown, a size is negative or the product overflows.
std::optional<int64_t> tensor_bytes(const TensorInfo& tensor) {
  std::optional<int64_t> bytes = dtype_bytes(tensor.dtype);
  for (const int64_t size : tensor.shape) {
    if (!bytes || size < 0) return std::nullopt;
    bytes = checked_mul(*bytes, size);
  }
  return bytes;
}

TensorInfo parse_tensor(const std::string& name, const JsonReader& entry) {
  constexpr int64_t kMaxDimensions = 64;
  TensorInfo tensor;
  tensor.name = name;
  tensor.dtype = entry.at("dtype").text();
  if (!dtype_bytes(tensor.dtype))
    entry.at("dtype").fail(fmt::format("unknown type '{}'", tensor.dtype));
  for (const JsonReader& size : entry.at("shape").elements(kMaxDimensions))
    tensor.shape.push_back(size.integer(0));
  const std::vector<JsonReader> offsets = entry.at("data_offsets").elements(2);
  if (offsets.size() != 2)
    entry.at("data_offsets")
        .fail(fmt::format("expected [begin, end], found {} numbers", offsets.size()));
  tensor.begin = offsets[0].integer(0);
  tensor.end = offsets[1].integer(0);
  const std::optional<int64_t> bytes = tensor_bytes(tensor);
  if (!bytes || tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
    entry.fail(fmt::format("type {} and shape [{}] do not fit the offsets {} and {}", tensor.dtype,
                           fmt::join(tensor.shape, ", "), tensor.begin, tensor.end));
  }
  return tensor;
}

void check_covers(const std::vector<TensorInfo>& tensors, int64_t data_bytes,
                  std::string_view place) {
  int64_t position = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != position) {
      throw ParseError(
          place, 0,
          fmt::format("tensor '{}' begins at byte {}; expected {}, where the one before it ends",
                      tensor.name, tensor.begin, position));
    }
    position = tensor.end;
  }
  if (position != data_bytes)
    throw ParseError(
        place, 0,
        fmt::format("the tensors end at byte {}, the data ends at byte {}", position, data_bytes));
}

}  // namespace

std::string make_safetensors_header(std::vector<TensorInfo>& tensors) {
  Json document = Json::object();
  std::set<std::string_view> names;
  int64_t position = 0;
  for (TensorInfo& tensor : tensors) {
    const std::optional<int64_t> bytes = tensor_bytes(tensor);
    const std::optional<int64_t> end = bytes ? checked_add(position, *bytes) : std::nullopt;
    if (!end)
      throw ConfigError(fmt::format("tensor '{}': type {}, shape [{}] cannot be stored",
                                    tensor.name, tensor.dtype, fmt::join(tensor.shape, ", ")));
    if (tensor.name == kMetadata || !names.insert(tensor.name).second)
      throw ConfigError(fmt::format("two tensors are named '{}'", tensor.name));
    tensor.begin = std::exchange(position, *end);
    tensor.end = *end;
    document[tensor.name] = {{"dtype", tensor.dtype},
                             {"shape", tensor.shape},
                             {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string header;
  try {
    header = document.dump();
  } catch (const Json::exception&) {
    throw ConfigError("a tensor's name is not valid UTF-8");
  }
  header.resize(static_cast<size_t>(ceil_div(static_cast<int64_t>(header.size()), 8) * 8), ' ');
  std::string result(kSafetensorsLengthBytes, '\0');
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return result + header;
}

int64_t safetensors_header_bytes(std::string_view first_eight, int64_t file_bytes,
                                 std::string_view place) {
  if (static_cast<int64_t>(first_eight.size()) < kSafetensorsLengthBytes) {
    throw ParseError(
        place, 0,
        fmt::format("expected a safetensors file, found only {} bytes", first_eight.size()));
  }
  uint64_t length = 0;
  for (size_t i = kSafetensorsLengthBytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(first_eight[i]);
  const int64_t most = std::min(kMaxSafetensorsHeaderBytes, file_bytes - kSafetensorsLengthBytes);
  if (length > static_cast<uint64_t>(std::max<int64_t>(most, 0))) {
    throw ParseError(
        place, 0,
        fmt::format("expected a header of at most {} bytes, found a length of {}", most, length));
  }
  return static_cast<int64_t>(length);
}

std::vector<TensorInfo> parse_safetensors_header(std::string_view header, int64_t data_bytes,
                                                 std::string_view place) {
  const Json document = parse_json(header, place);
  if (!document.is_object()) throw ParseError(place, 0, "expected a JSON object as header");
  std::vector<TensorInfo> tensors;
  for (const auto& [name, value] : document.items()) {
    if (name != kMetadata)
      tensors.push_back(
          parse_tensor(name, JsonReader(value, fmt::format("{}: tensor '{}'", place, name))));
  }
  // Empty tensors begin at the same byte as the next one.
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_covers(tensors, data_bytes, place);
  return tensors;
}

std::vector<TensorInfo> parse_safetensors(std::string_view file, std::string_view place) {
  const auto file_bytes = static_cast<int64_t>(file.size());
  const int64_t header_bytes =
      safetensors_header_bytes(file.substr(0, kSafetensorsLengthBytes), file_bytes, place);
  const int64_t data_begin = kSafetensorsLengthBytes + header_bytes;
  const std::string_view header =
      file.substr(kSafetensorsLengthBytes, static_cast<size_t>(header_bytes));
  return parse_safetensors_header(header, file_bytes - data_begin, place);
}

}  // namespace penstock
