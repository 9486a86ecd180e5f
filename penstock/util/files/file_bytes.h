// The bytes of a file that may be larger than the memory: many are mapped, and read from the disk
// when they are looked at; few are read at once.
//
//   const auto bytes = std::make_shared<const FileBytes>("tokens.bin", kMost);
//   use(bytes->view());
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace penstock {

/// From here on files are mapped. Such a file must not become shorter while it is used: who reads
/// beyond its end is killed by the system.
inline constexpr int64_t kMapFromBytes = int64_t{1} << 24;

/// Immutable; thread-safe.
class FileBytes {
 public:
  /// Throws ConfigError naming the path: missing, no file of its own, unreadable, larger than
  /// `max_bytes`, no address space left for it.
  FileBytes(const std::filesystem::path& path, int64_t max_bytes);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::string_view view() const { return view_; }

 private:
  std::string read_;
  void* mapped_ = nullptr;
  std::string_view view_;
};

/// Memory that this process may still take, as far as the system says: the machine's and its
/// control group's. Throws ConfigError that says what needs `bytes`, and how much there is.
void require_memory(int64_t bytes, std::string_view what);

}  // namespace penstock
