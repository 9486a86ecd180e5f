// Reading and writing whole files with bounds and without half-written results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace penstock {

/// The largest text file that is read whole (profiles, plans, schedules).
inline constexpr int64_t kMaxTextFileBytes = int64_t{1} << 30;

/// The file's bytes. Throws ConfigError naming the path if it is missing, a directory, unreadable,
/// larger than `max_bytes` or a device that gives no text (/dev/zero).
std::string read_file(const std::filesystem::path& path, int64_t max_bytes = kMaxTextFileBytes);

/// Writes to a temporary file beside `path`, flushes it to disk and renames it: readers see the
/// whole old content or the whole new content. Throws ConfigError if the folder is missing or not
/// writable, RuntimeError if writing fails (disk full).
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

/// CRC-32 (IEEE 802.3, as zlib computes it) of the bytes, to notice damage.
uint32_t crc32_of(std::string_view bytes);

}  // namespace penstock
