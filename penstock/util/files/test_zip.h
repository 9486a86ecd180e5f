// For tests: zip files as bytes.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "penstock/util/files/files.h"

namespace penstock {

inline std::string raw_deflated(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// Members in their order, stored or deflated.
inline std::string make_zip(const std::vector<std::pair<std::string, std::string>>& members,
                            bool deflates = false) {
  const auto number = [](uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
    return text;
  };
  std::string file;
  std::string directory;
  for (const auto& [name, content] : members) {
    const std::string packed = deflates ? raw_deflated(content) : content;
    const std::string common = number(deflates ? 8 : 0, 2) + number(0, 4) +
                               number(crc32_of(content), 4) + number(packed.size(), 4) +
                               number(content.size(), 4) + number(name.size(), 2) + number(0, 2);
    directory += number(0x02014b50, 4) + number(20, 2) + number(20, 2) + number(0, 2) + common +
                 number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4) +
                 number(file.size(), 4) + name;
    file += number(0x04034b50, 4) + number(20, 2) + number(0, 2) + common + name + packed;
  }
  const size_t offset = file.size();
  return file + directory + number(0x06054b50, 4) + number(0, 4) + number(members.size(), 2) +
         number(members.size(), 2) + number(directory.size(), 4) + number(offset, 4) + number(0, 2);
}

}  // namespace penstock
