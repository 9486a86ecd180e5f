#include "penstock/util/files/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "penstock/util/error.h"

namespace penstock {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_to_read(const std::string& path, std::string_view why) {
  throw ConfigError(fmt::format("cannot read '{}': {}", path, why));
}

/// Whether a pipe has data, or somebody who may write some.
bool has_writer(int pipe) {
  int copy[2] = {-1, -1};
  if (::pipe2(copy, O_CLOEXEC) != 0) return true;
  const ssize_t copied = ::tee(pipe, copy[1], 1, SPLICE_F_NONBLOCK);
  ::close(copy[0]);
  ::close(copy[1]);
  return copied != 0;
}

/// A named pipe can be opened before its writer is there; without one nothing would ever come.
bool gets_writer(int pipe) {
  constexpr std::chrono::seconds kPatience{5};
  constexpr std::chrono::milliseconds kBetween{20};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!has_writer(pipe)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kBetween);
  }
  return true;
}

}  // namespace

InputFile::InputFile(const fs::path& path)
    : path_(path.string()), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  const auto refuse = [this](std::string_view why) {
    if (fd_ >= 0) ::close(fd_);
    refuse_to_read(path_, why);
  };
  if (fd_ < 0) refuse(std::strerror(errno));
  struct stat status {};
  if (::fstat(fd_, &status) != 0) refuse(std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse("it is a directory, expected a file");
  if (S_ISFIFO(status.st_mode) && !gets_writer(fd_))
    refuse("it is a pipe, and nobody has opened it for writing within 5 s");
  ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
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
