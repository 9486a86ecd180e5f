// A file that is read piece by piece, where reading it whole could be too much.
//
//   InputFile file(path);
//   const size_t count = file.read(header.data(), header.size());
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace penstock {

/// A file that is read from its beginning, as far as its reader wants.
class InputFile {
 public:
  /// Throws ConfigError as read_file.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Up to `bytes` bytes; fewer only at the end. Throws ConfigError when reading fails.
  size_t read(char* out, size_t bytes);
  /// The bytes that it had when it was opened; nothing for devices and pipes.
  std::optional<int64_t> size() const { return size_; }

 private:
  std::string path_;
  int fd_;
  std::optional<int64_t> size_;
};

}  // namespace penstock
