#include "penstock/util/files/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "penstock/util/error.h"
#include "penstock/util/files/input_file.h"

namespace penstock {

namespace fs = std::filesystem;

namespace {

/// Closes a file descriptor at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

std::string reason(int error) { return std::strerror(error); }

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

/// A device or a pipe has no old content to protect and must not be replaced by a file.
void write_in_place(const fs::path& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.ok())
    throw ConfigError(fmt::format("cannot write '{}': {}", path.string(), reason(errno)));
  if (!write_all(file.get(), content))
    throw RuntimeError(fmt::format("writing '{}' failed: {}", path.string(), reason(errno)));
}

fs::path temporary_name(const fs::path& path) {
  static std::atomic<uint64_t> counter{0};
  return path.string() + fmt::format(".tmp.{}.{}", ::getpid(), counter.fetch_add(1));
}

/// Without this a crash of the machine could lose the rename although the file itself is on disk.
/// Not every file system supports it.
void flush_folder(const fs::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.ok()) (void)::fsync(opened.get());
}

}  // namespace

std::string read_file(const fs::path& path, int64_t max_bytes) {
  InputFile file(path);
  std::error_code ignored;
  const bool is_device = fs::is_character_file(path, ignored);
  const auto too_large = [&] {
    throw ConfigError(fmt::format("cannot read '{}': it is larger than the {} bytes accepted here",
                                  path.string(), max_bytes));
  };
  if (file.size().value_or(0) > max_bytes) too_large();

  std::string content;
  content.reserve(static_cast<size_t>(file.size().value_or(0)));
  // The size may change while the file is read, and pipes have none: read up to the limit and look
  // for more.
  char block[1 << 16];
  while (const size_t got = file.read(block, sizeof block)) {
    // A device that never ends is no file to read.
    if (is_device && std::string_view(block, got).find('\0') != std::string_view::npos) {
      throw ConfigError(
          fmt::format("cannot read '{}': what comes from it is no text", path.string()));
    }
    if (static_cast<int64_t>(got) > max_bytes - static_cast<int64_t>(content.size())) too_large();
    content.append(block, got);
  }
  return content;
}

void write_file_atomic(const fs::path& path, std::string_view content) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status))
    throw ConfigError(
        fmt::format("cannot write '{}': it is a directory, expected a file", path.string()));
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_in_place(path, content);
  // A symbolic link stays a link: the file that it names is replaced.
  const fs::path resolved = fs::is_symlink(fs::symlink_status(path, ignored))
                                ? fs::weakly_canonical(path, ignored)
                                : path;
  const fs::path target = resolved.empty() ? path : resolved;
  const fs::path temporary = temporary_name(target);

  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.ok())
    throw ConfigError(fmt::format("cannot write '{}': {}", path.string(), reason(errno)));
  struct stat old {};
  if (::stat(target.c_str(), &old) == 0) (void)::fchmod(file.get(), old.st_mode & 07777);

  const bool written = write_all(file.get(), content) && ::fsync(file.get()) == 0 && file.close() &&
                       ::rename(temporary.c_str(), target.c_str()) == 0;
  if (!written) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw RuntimeError(fmt::format("writing '{}' failed: {}", path.string(), reason(error)));
  }
  flush_folder(target.has_parent_path() ? target.parent_path() : fs::path("."));
}

uint32_t crc32_of(std::string_view bytes) {
  // zlib counts in 32 bits.
  constexpr size_t kBlock = size_t{1} << 30;
  uLong crc = ::crc32(0, nullptr, 0);
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kBlock);
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(count));
    bytes.remove_prefix(count);
  }
  return static_cast<uint32_t>(crc);
}

}  // namespace penstock
