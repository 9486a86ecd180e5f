#include "penstock/util/files/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>

#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock {
namespace {

/// The number behind this word of a file of the kernel's; -1: it has none.
int64_t number_after(const char* path, const std::string& word) {
  std::ifstream file(path);
  for (std::string found; file >> found;) {
    int64_t number = -1;
    if (found == word && file >> number) return number;
  }
  return -1;
}

int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

int64_t available_bytes() {
  int64_t available = std::numeric_limits<int64_t>::max();
  if (const int64_t kib = number_after("/proc/meminfo", "MemAvailable:"); kib >= 0)
    available = kib * 1024;
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const int64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) {
    const int64_t cached = number_after("/sys/fs/cgroup/memory.stat", "inactive_file");
    available = std::min(available, limit - used + std::max<int64_t>(cached, 0));
  }
  return available;
}

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& path, int64_t max_bytes) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  const bool is_large = !error && size >= kMapFromBytes && size <= max_bytes &&
                        std::filesystem::is_regular_file(path, error);
  if (!is_large) {
    view_ = read_ = read_file(path, max_bytes);
    return;
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) mapped_ = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, fd, 0);
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (fd < 0 || mapped_ == MAP_FAILED) {
    throw ConfigError(fmt::format("cannot read '{}', which has {}: {}", printable(path.string()),
                                  format_bytes(size), std::strerror(why)));
  }
  view_ = {static_cast<const char*>(mapped_), static_cast<size_t>(size)};
}

FileBytes::~FileBytes() {
  if (mapped_ != nullptr) munmap(mapped_, view_.size());
}

void require_memory(int64_t bytes, std::string_view what) {
  const int64_t available = available_bytes();
  if (bytes <= available) return;
  throw ConfigError(fmt::format("{} {} of memory, and {} are left", what, format_bytes(bytes),
                                format_bytes(std::max<int64_t>(available, 0))));
}

}  // namespace penstock
