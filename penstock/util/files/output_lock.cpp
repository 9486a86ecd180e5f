#include "penstock/util/files/output_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <thread>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::string own_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

/// What the holder has written.
std::string holder_in(int descriptor) {
  std::array<char, 300> text{};
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  return size > 0 ? printable({text.data(), static_cast<size_t>(size)}) : "another process";
}

}  // namespace

OutputLock::OutputLock(const fs::path& file, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kBetween{50};
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  path_ = file.parent_path() / fmt::format(".{}.lock", file.filename().string());
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) return;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (std::chrono::steady_clock::now() >= deadline) {
      const std::string holder = holder_in(descriptor_);
      ::close(descriptor_);
      throw ConfigError(fmt::format(
          "'{}' is what another run is to write ({}): choose another file, or end that run first. "
          "{}",
          printable(file.string()), holder, kUnknownLauncherHint));
    }
    std::this_thread::sleep_for(kBetween);
  }
  const std::string own = own_process();
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, own.data(), own.size(), 0) < 0) {
    // A full disk: the lock holds all the same, nameless.
  }
}

OutputLock::~OutputLock() {
  if (descriptor_ < 0) return;
  std::error_code ignored;
  fs::remove(path_, ignored);
  ::close(descriptor_);
}

}  // namespace penstock
