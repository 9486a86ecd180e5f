// NumPy's files: one array (.npy), or several by name (.npz). What an array is, its header says;
// its numbers are read when they are asked for, and those of large files stay on the disk.
//
//   Npz file("mine.npz");
//   for (const auto& [name, header] : file.arrays()) use(name, header.sizes);
//   StoredArray images = file.read("images");
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "penstock/train/data/stored_array.h"
#include "penstock/util/files/file_bytes.h"
#include "penstock/util/files/zip_archive.h"

namespace penstock::train {

/// The type of this name, one of NumPy's without the order of its bytes.
const NumberType& number_type(std::string_view name);

/// What the first bytes of an array say.
struct ArrayHeader {
  NumberType type;
  model::Shape sizes;
  bool column_major = false;
  size_t start = 0;       ///< of the numbers
  int64_t num_bytes = 0;  ///< of them
  /// Why it is no array of numbers, beginning with its file's name; the rest is empty then.
  std::string trouble = {};
};

/// An array of numbers or truth values; uint16 becomes int32, uint32 and uint64 int64, float8_e5m2
/// float16. Throws ConfigError (it cannot be read), ParseError naming the file: no .npy, another
/// type, sizes that do not fit its length.
StoredArray read_npy(const std::filesystem::path& path);
/// The same for the content of an .npy file; `place` names it in errors.
StoredArray parse_npy(std::string content, const std::string& place);

class Npz {
 public:
  /// Reads the headers. Throws ConfigError: it cannot be read, or is no zip file.
  explicit Npz(const std::filesystem::path& path);

  /// By name without ".npy".
  const std::map<std::string, ArrayHeader>& arrays() const { return arrays_; }
  /// What reading the array takes of memory: nothing where it stays on the disk.
  int64_t memory_for(const std::string& name) const;
  /// Throws ParseError (ArrayHeader::trouble; damage), ConfigError.
  StoredArray read(const std::string& name);

 private:
  std::filesystem::path path_;
  ZipArchive archive_;
  std::map<std::string, ArrayHeader> arrays_;
  std::shared_ptr<const FileBytes> mapped_;  ///< the archive, once one of its members is read so
};

}  // namespace penstock::train
