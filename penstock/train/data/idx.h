// IDX files (http://yann.lecun.com/exdb/mnist): big-endian sizes, then the numbers, plain or gzip.
// Only unsigned bytes are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace penstock::train {

/// The maximum of data in one IDX file, unpacked.
inline constexpr int64_t kMaxIdxBytes = int64_t{4} << 30;

struct IdxData {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;  ///< row-major; their number is the product of `sizes`

  bool operator==(const IdxData&) const = default;
};

/// One IDX file of unsigned bytes. Throws ConfigError when it is missing or unreadable, ParseError
/// naming the file for a wrong magic number, truncation, trailing bytes, damaged gzip data, sizes
/// that overflow or exceed 4 GiB (a gzip bomb is stopped there).
IdxData read_idx(const std::filesystem::path& path, int expected_dimensions);

/// The same for a file's content in memory; `place` names it in errors.
IdxData parse_idx(std::string_view content, int expected_dimensions, std::string_view place);

}  // namespace penstock::train
