// Reads zip files: the directory, and members that are stored or deflated.
//
//   ZipArchive archive("arrays.npz", "numpy.savez");
//   std::string bytes = archive.read("x.npy", kMost);
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>

namespace penstock {

struct ZipMember {
  int64_t offset = 0;        ///< of its first byte in the file
  int64_t packed_bytes = 0;  ///< there
  int64_t bytes = 0;         ///< when unpacked
  uint32_t crc32 = 0;
  bool is_deflated = false;
};

class ZipArchive {
 public:
  /// Reads the directory. Throws ConfigError naming the file: it cannot be read, is no zip file (as
  /// `writer` makes them, for the message), is damaged, names a member twice, or packs one in
  /// another way than deflate. Memory in proportion to the directory.
  ZipArchive(const std::string& path, const std::string& writer);

  const std::map<std::string, ZipMember>& members() const { return members_; }
  /// The bytes of a member, at most `max_bytes`, with their check sum checked. Throws ConfigError.
  std::string read(const std::string& name, int64_t max_bytes);
  /// Its first `bytes`, or all if it has fewer, without a look at the rest or its check sum: to
  /// decide whether the member is worth its memory. Throws ConfigError.
  std::string begin(const std::string& name, int64_t bytes);

 private:
  [[noreturn]] void fail(const std::string& why) const;
  std::string bytes_at(int64_t offset, int64_t count);
  const ZipMember& member(const std::string& name) const;
  std::string inflated(const std::string& packed, const std::string& name,
                       const ZipMember& member) const;
  void read_directory(int64_t offset, int64_t bytes, int64_t entries);
  int64_t data_offset(int64_t local_header, const std::string& name);

  std::string path_;
  std::ifstream file_;
  int64_t size_ = 0;
  std::map<std::string, ZipMember> members_;
};

}  // namespace penstock
