// Writes and reads large files from front to back and computes byte counts and CRC-32 meanwhile, so
// that no file is kept in memory or read twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace penstock::train {

/// Makes a new file. Every failure is a RuntimeError naming the file and the system's reason. Not
/// thread-safe.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);
  /// Closes without flushing when finish() was not called.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, size_t bytes);
  /// Blocks until the content is on disk.
  void finish();

  int64_t bytes() const { return bytes_; }
  uint32_t crc32() const { return crc_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
  uint32_t crc_ = 0;
};

/// Reads a file of known size. Every failure is a CheckpointError naming the file. Not thread-safe.
class FileReader {
 public:
  explicit FileReader(std::filesystem::path path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  /// Exactly this many bytes.
  void read(void* out, int64_t bytes);
  /// Reads the rest of the file, only for its checksum.
  void skip_rest();

  std::string place() const { return path_.string(); }
  int64_t size() const { return size_; }
  int64_t remaining() const { return size_ - position_; }
  /// Of everything read so far.
  uint32_t crc32() const { return crc_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  int64_t position_ = 0;
  uint32_t crc_ = 0;
};

/// Blocks until the names in the folder are on disk. Throws RuntimeError.
void sync_directory(const std::filesystem::path& path);

}  // namespace penstock::train
