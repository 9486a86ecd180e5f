// NumPy's files of one array, as far as clips need them: features of frames are read, and arrays of
// many clips written one after the other.
//
//   const NpyRows rows = read_npy_rows("clip7.npy");   // [frames, numbers] as float32
//
//   NpyWriter writer("train.frames.npy", "<f4", {1200, 16, 4096});
//   writer.add(bytes);
//   writer.finish();
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::captions {

struct NpyRows {
  int64_t rows = 0;
  int64_t numbers = 0;  ///< of a row
  std::vector<float> values;
};

/// Two dimensions, row by row, of float32 or float64, little-endian. Throws ConfigError: it cannot
/// be read, or has more than 1 GiB; ParseError: another file or another array.
NpyRows read_npy_rows(const std::filesystem::path& file);

/// Writes beside the file and renames it when all is there. Throws ConfigError: it cannot be made;
/// RuntimeError: it cannot be written.
class NpyWriter {
 public:
  /// `type`: "|u1", "<i4", "<f4".
  NpyWriter(std::filesystem::path file, std::string_view type, const std::vector<int64_t>& sizes);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  void add(std::string_view bytes);
  void finish();

 private:
  void check() const;

  std::filesystem::path file_;
  std::filesystem::path partial_;
  std::ofstream out_;
};

}  // namespace penstock::captions
