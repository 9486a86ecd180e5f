// Reads the directory of a zip file and members that are stored without compression, as PyTorch
// writes them. Internal to exported.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>

namespace penstock::exported {

struct ZipMember {
  int64_t offset = 0;  ///< of its first byte in the file
  int64_t bytes = 0;
  uint32_t crc32 = 0;
};

class ZipArchive {
 public:
  /// Reads the directory. Throws ConfigError naming the file: it cannot be read, is no zip file, is
  /// damaged, names a member twice, or compresses one. Memory in proportion to the directory.
  explicit ZipArchive(const std::string& path);

  const std::map<std::string, ZipMember>& members() const { return members_; }
  /// The bytes of a member, at most `max_bytes`, with their check sum checked. Throws ConfigError.
  std::string read(const std::string& name, int64_t max_bytes);

 private:
  [[noreturn]] void fail(const std::string& why) const;
  std::string bytes_at(int64_t offset, int64_t count);
  void read_directory(int64_t offset, int64_t bytes, int64_t entries);
  int64_t data_offset(int64_t local_header, const std::string& name);

  std::string path_;
  std::ifstream file_;
  int64_t size_ = 0;
  std::map<std::string, ZipMember> members_;
};

}  // namespace penstock::exported
