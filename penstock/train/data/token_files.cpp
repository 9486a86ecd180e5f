#include "penstock/train/data/token_files.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string_view>

#include "penstock/train/data/npy.h"
#include "penstock/train/data/token_dataset.h"
#include "penstock/util/error.h"

namespace penstock::train {

StoredArray tokens_in(const std::shared_ptr<const FileBytes>& bytes, size_t start,
                      const NumberType& type) {
  const std::string_view numbers = bytes->view().substr(start);
  const auto width = static_cast<int64_t>(c10::elementSize(type.stored));
  if (std::ssize(numbers) % width != 0) {
    throw ConfigError(
        fmt::format("expected tokens of {} bytes each, found {} bytes", width, numbers.size()));
  }
  return {numbers.data(), type, {std::ssize(numbers) / width}, /*column_major=*/false, bytes};
}

/// llm.c's files begin with 256 numbers: a mark, a version that says how wide tokens are, and how
/// many there are. nanoGPT's have the tokens alone.
StoredArray read_tokens(const std::string& file) {
  constexpr size_t kHeaderBytes = 1024;
  const auto bytes = std::make_shared<const FileBytes>(file, kMostTokenBytes);
  std::array<int32_t, 2> begin{};
  if (bytes->view().size() >= kHeaderBytes)
    std::memcpy(begin.data(), bytes->view().data(), sizeof(begin));
  if (begin == std::array<int32_t, 2>{20240801, 7})
    return tokens_in(bytes, kHeaderBytes, number_type("u4"));
  const bool has_header = begin == std::array<int32_t, 2>{20240520, 1};
  return tokens_in(bytes, has_header ? kHeaderBytes : 0, number_type("u2"));
}

std::shared_ptr<const Dataset> language_data(const DataSpec& spec, const std::string& name,
                                             const StoredArray& tokens) {
  if (tokens.sizes().size() != 1 || !at::isIntegralType(tokens.type(), /*includeBool=*/false)) {
    throw ConfigError(
        fmt::format("expected one row of tokens (whole numbers), found {}; arrays of samples come "
                    "as .npz, with their names",
                    describe(tokens.type(), tokens.sizes())));
  }
  return std::make_shared<TokenDataset>(name, spec.sample, tokens, spec.ignore_index);
}

}  // namespace penstock::train
