#include "penstock/util/files/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/text/printable.h"

namespace penstock {
namespace {

// Signatures and sizes of APPNOTE.TXT 6.3.10.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr uint64_t kDeflated = 8;
constexpr int64_t kEndBytes = 22;
constexpr int64_t kMaxDirectoryBytes = int64_t{1} << 30;

/// Little-endian numbers of a record; positions are checked by the caller.
uint64_t number(std::string_view text, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(text[at + i]);
  return value;
}

int64_t signed_number(std::string_view text, size_t at, size_t bytes) {
  return static_cast<int64_t>(number(text, at, bytes));
}

}  // namespace

ZipArchive::ZipArchive(const std::string& path, const std::string& writer) : path_(path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw ConfigError(fmt::format("there is no file '{}'", printable(path)));
  if (!std::filesystem::is_regular_file(path, error))
    fail("is no file of its own (a folder or device)");
  file_.open(path, std::ios::binary);
  if (!file_) fail("cannot be read");
  size_ = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) fail("cannot be read");
  if (size_ < kEndBytes) fail(size_ == 0 ? "is empty" : "is no zip archive: too short");

  const int64_t tail_bytes = std::min<int64_t>(size_, kEndBytes + 65535);
  const std::string tail = bytes_at(size_ - tail_bytes, tail_bytes);
  size_t end = tail.size() - static_cast<size_t>(kEndBytes) + 1;
  while (end-- > 0) {
    if (number(tail, end, 4) == kEnd &&
        number(tail, end + 20, 2) == tail.size() - end - static_cast<size_t>(kEndBytes))
      break;
  }
  if (end > tail.size())
    fail(fmt::format("is no zip archive, as {} writes, or is cut off", writer));
  int64_t entries = signed_number(tail, end + 10, 2);
  int64_t bytes = signed_number(tail, end + 12, 4);
  int64_t offset = signed_number(tail, end + 16, 4);
  const int64_t locator = size_ - tail_bytes + static_cast<int64_t>(end) - 20;
  if (locator >= 0 && number(bytes_at(locator, 4), 0, 4) == kEnd64Locator) {
    const int64_t end64 = signed_number(bytes_at(locator, 20), 8, 8);
    const std::string record = bytes_at(end64, 56);
    if (number(record, 0, 4) != kEnd64) fail("has a damaged directory");
    entries = signed_number(record, 32, 8);
    bytes = signed_number(record, 40, 8);
    offset = signed_number(record, 48, 8);
  }
  read_directory(offset, bytes, entries);
}

void ZipArchive::fail(const std::string& why) const {
  throw ConfigError(fmt::format("'{}' {}", printable(path_), why));
}

std::string ZipArchive::bytes_at(int64_t offset, int64_t count) {
  if (offset < 0 || count < 0 || offset > size_ || count > size_ - offset)
    fail("is damaged: a part lies outside of the file");
  std::string bytes(static_cast<size_t>(count), '\0');
  file_.clear();
  file_.seekg(offset);
  file_.read(bytes.data(), count);
  if (!file_) fail("cannot be read");
  return bytes;
}

void ZipArchive::read_directory(int64_t offset, int64_t bytes, int64_t entries) {
  if (bytes > kMaxDirectoryBytes) fail("is damaged: its directory is too long");
  const std::string directory = bytes_at(offset, bytes);
  size_t at = 0;
  for (int64_t entry = 0; entry < entries; ++entry) {
    if (directory.size() - at < 46 || number(directory, at, 4) != kDirectoryEntry)
      fail("has a damaged directory");
    const uint64_t flags = number(directory, at + 8, 2);
    const uint64_t method = number(directory, at + 10, 2);
    ZipMember member{.crc32 = static_cast<uint32_t>(number(directory, at + 16, 4))};
    member.packed_bytes = signed_number(directory, at + 20, 4);
    member.bytes = signed_number(directory, at + 24, 4);
    const size_t name_bytes = number(directory, at + 28, 2);
    const size_t extra_bytes = number(directory, at + 30, 2);
    const size_t comment_bytes = number(directory, at + 32, 2);
    int64_t header = signed_number(directory, at + 42, 4);
    at += 46;
    if (directory.size() - at < name_bytes + extra_bytes + comment_bytes)
      fail("has a damaged directory");
    const std::string name = directory.substr(at, name_bytes);
    const std::string_view extra = std::string_view(directory).substr(at + name_bytes, extra_bytes);
    at += name_bytes + extra_bytes + comment_bytes;
    // Sizes above 4 GB are in an extra field, those that do not fit in this order.
    for (size_t e = 0; e + 4 <= extra.size();) {
      const size_t length = number(extra, e + 2, 2);
      if (e + 4 + length > extra.size()) break;
      if (number(extra, e, 2) == 1) {
        size_t next = e + 4;
        for (int64_t* value : {&member.bytes, &member.packed_bytes, &header}) {
          if (*value != 0xffffffff) continue;
          if (next + 8 > e + 4 + length) fail("has a damaged directory");
          *value = signed_number(extra, next, 8);
          next += 8;
        }
      }
      e += 4 + length;
    }
    if (!name.empty() && name.back() == '/') continue;
    if ((flags & 1) != 0) fail(fmt::format("encrypts its member '{}'", printable(name)));
    member.is_deflated = method == kDeflated;
    if (method != 0 && method != kDeflated) {
      fail(fmt::format("packs its member '{}' by method {}; expected none, or deflate",
                       printable(name), method));
    }
    if (!member.is_deflated && member.packed_bytes != member.bytes) fail("has a damaged directory");
    member.offset = data_offset(header, name);
    if (member.bytes < 0 || member.packed_bytes < 0 || member.packed_bytes > size_ - member.offset)
      fail(fmt::format("is damaged: its member '{}' lies outside of the file", printable(name)));
    if (!members_.emplace(name, member).second)
      fail(fmt::format("has two members '{}'", printable(name)));
  }
}

int64_t ZipArchive::data_offset(int64_t local_header, const std::string& name) {
  const std::string header = bytes_at(local_header, 30);
  if (number(header, 0, 4) != kLocalHeader)
    fail(fmt::format("is damaged at its member '{}'", printable(name)));
  const int64_t offset =
      local_header + 30 + signed_number(header, 26, 2) + signed_number(header, 28, 2);
  if (offset > size_)
    fail(fmt::format("is damaged: its member '{}' lies outside of the file", printable(name)));
  return offset;
}

std::string ZipArchive::inflated(const std::string& packed, const std::string& name,
                                 const ZipMember& member) const {
  // Deflate cannot do better: what claims to is a trap, and no memory is taken for it.
  constexpr int64_t kBestRatio = 1040;
  const bool is_plausible = member.bytes / kBestRatio <= member.packed_bytes;
  std::string bytes(is_plausible ? static_cast<size_t>(member.bytes) : 0, '\0');
  z_stream stream{};
  bool good = is_plausible && inflateInit2(&stream, -MAX_WBITS) == Z_OK;
  // zlib counts in 32 bits.
  constexpr size_t kMost = size_t{1} << 30;
  size_t read = 0;
  size_t made = 0;
  int status = Z_OK;
  while (good && status == Z_OK) {
    const size_t in = std::min(kMost, packed.size() - read);
    const size_t out = std::min(kMost, bytes.size() - made);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + read));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + made);
    stream.avail_out = static_cast<uInt>(out);
    status = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    made += out - stream.avail_out;
    if (in == stream.avail_in && out == stream.avail_out && status == Z_OK) break;
  }
  if (is_plausible) inflateEnd(&stream);
  good = good && status == Z_STREAM_END && made == bytes.size();
  if (!good) fail(fmt::format("is damaged: its member '{}' cannot be unpacked", printable(name)));
  return bytes;
}

const ZipMember& ZipArchive::member(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end()) fail(fmt::format("has no member '{}'", printable(name)));
  return found->second;
}

std::string ZipArchive::begin(const std::string& name, int64_t bytes) {
  const ZipMember& found = member(name);
  bytes = std::min(bytes, found.bytes);
  if (!found.is_deflated) return bytes_at(found.offset, bytes);
  // What deflate cannot make smaller grows by far less than that.
  const std::string packed =
      bytes_at(found.offset, std::min(found.packed_bytes, bytes + bytes / 8 + 1024));
  std::string text(static_cast<size_t>(bytes), '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw RuntimeError("zlib has no memory");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  inflate(&stream, Z_SYNC_FLUSH);
  const bool complete = stream.avail_out == 0;
  inflateEnd(&stream);
  if (!complete)
    fail(fmt::format("is damaged: its member '{}' cannot be unpacked", printable(name)));
  return text;
}

std::string ZipArchive::read(const std::string& name, int64_t max_bytes) {
  const ZipMember& found = member(name);
  if (found.bytes > max_bytes) {
    fail(fmt::format("has a member '{}' of {} bytes, expected at most {}", printable(name),
                     found.bytes, max_bytes));
  }
  std::string bytes = bytes_at(found.offset, found.packed_bytes);
  if (found.is_deflated) bytes = inflated(bytes, name, found);
  if (crc32_of(bytes) != found.crc32)
    fail(fmt::format("is damaged: the check sum of its member '{}' is wrong", printable(name)));
  return bytes;
}

}  // namespace penstock
