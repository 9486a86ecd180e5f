#include "penstock/train/checkpoint/file_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::train {
namespace {

/// Small enough that the checksum reads what is still in the cache.
constexpr int64_t kChunk = int64_t{1} << 20;

std::string reason() { return std::generic_category().message(errno); }

uint32_t extend_crc(uint32_t crc, const void* data, int64_t bytes) {
  return static_cast<uint32_t>(
      ::crc32(crc, static_cast<const Bytef*>(data), static_cast<uInt>(bytes)));
}

}  // namespace

FileWriter::FileWriter(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw RuntimeError(fmt::format("cannot create '{}': {}", path_.string(), reason()));
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t chunk = std::min(bytes, static_cast<size_t>(kChunk));
    const ssize_t written = ::write(descriptor_, next, chunk);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw RuntimeError(
          fmt::format("cannot write '{}' at byte {}: {}", path_.string(), bytes_, reason()));
    crc_ = extend_crc(crc_, next, written);
    bytes_ += written;
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void FileWriter::finish() {
  if (::fsync(descriptor_) != 0)
    throw RuntimeError(fmt::format("cannot flush '{}' to disk: {}", path_.string(), reason()));
  const int result = ::close(descriptor_);
  descriptor_ = -1;
  if (result != 0)
    throw RuntimeError(fmt::format("cannot close '{}': {}", path_.string(), reason()));
}

FileReader::FileReader(std::filesystem::path path) : path_(std::move(path)) {
  // Opening a pipe would wait for its writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0)
    throw CheckpointError(fmt::format("{}: cannot be opened: {}", place(), reason()));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw CheckpointError(fmt::format("{}: expected a file, found something else", place()));
  }
  size_ = status.st_size;
}

FileReader::~FileReader() { ::close(descriptor_); }

void FileReader::read(void* out, int64_t bytes) {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t count = ::read(descriptor_, next, static_cast<size_t>(std::min(bytes, kChunk)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw CheckpointError(
          fmt::format("{}: cannot be read at byte {}: {}", place(), position_, reason()));
    if (count == 0)
      throw CheckpointError(
          fmt::format("{}: the file is truncated: expected {} more bytes at byte {}", place(),
                      bytes, position_));
    crc_ = extend_crc(crc_, next, count);
    position_ += count;
    next += count;
    bytes -= count;
  }
}

void FileReader::skip_rest() {
  std::vector<char> buffer(static_cast<size_t>(std::clamp<int64_t>(remaining(), 0, kChunk)));
  while (remaining() > 0) read(buffer.data(), std::min(remaining(), kChunk));
}

void sync_directory(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    throw RuntimeError(fmt::format("cannot open folder '{}': {}", path.string(), reason()));
  // Some file systems cannot flush folders; they report EINVAL.
  const bool failed = ::fsync(descriptor) != 0 && errno != EINVAL;
  const std::string why = failed ? reason() : "";
  ::close(descriptor);
  if (failed)
    throw RuntimeError(fmt::format("cannot flush folder '{}' to disk: {}", path.string(), why));
}

}  // namespace penstock::train
