// The header of a safetensors file (https://github.com/huggingface/safetensors): eight bytes that
// hold the header's length (little-endian), a JSON object {"name": {"dtype": "F32", "shape": [2,
// 3], "data_offsets": [begin, end]}, ...}, then the tensors' bytes. Offsets count from the end of
// the header. Everything is checked. This code does not use tensors in memory. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
/// Some 200,000 tensors in one file; the format itself allows 100 MB.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{32} << 20;

struct TensorInfo {
  std::string name;
  std::string dtype = "F32";
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const TensorInfo&) const = default;
};

/// Places the tensors one after the other (sets begin and end) and returns the file's first bytes:
/// length and header, padded to a multiple of 8. Throws ConfigError for an unknown type, a bad
/// shape, a name that is not UTF-8 or occurs twice.
std::string make_safetensors_header(std::vector<TensorInfo>& tensors);

/// The header's length from the file's first eight bytes. Throws ParseError when it does not fit
/// into the file or exceeds the limit.
int64_t safetensors_header_bytes(std::string_view first_eight, int64_t file_bytes,
                                 std::string_view place);

/// The tensors of a header, in the order of their bytes, which they cover exactly: no gap, no
/// overlap, nothing left of `data_bytes`. Throws ParseError.
std::vector<TensorInfo> parse_safetensors_header(std::string_view header, int64_t data_bytes,
                                                 std::string_view place);

/// Both steps for a file in memory.
std::vector<TensorInfo> parse_safetensors(std::string_view file, std::string_view place);

}  // namespace penstock
