#include "penstock/util/files/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "penstock/util/error.h"

namespace penstock {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_to_read(const std::string& path, std::string_view why) {
  throw ConfigError(fmt::format("cannot read '{}': {}", path, why));
}

}  // namespace

InputFile::InputFile(const fs::path& path)
    : path_(path.string()), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  const auto refuse = [this](std::string_view why) {
    if (fd_ >= 0) ::close(fd_);
    refuse_to_read(path_, why);
  };
  if (fd_ < 0) refuse(std::strerror(errno));
  struct stat status {};
  if (::fstat(fd_, &status) != 0) refuse(std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse("it is a directory, expected a file");
  if (S_ISREG(status.st_mode)) size_ = status.st_size;
}

InputFile::~InputFile() { ::close(fd_); }

size_t InputFile::read(char* out, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(fd_, out + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_to_read(path_, std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace penstock
