#include "penstock/train/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/util/error.h"
#include "penstock/util/files/output_lock.h"
#include "penstock/util/process/mutex.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

using FolderId = std::pair<dev_t, ino_t>;

/// The folders that this process's runs hold, and whether it is saving into them. A lock of the
/// system is of a descriptor, so that a second one would be refused here, too.
struct Held {
  Mutex mutex;
  std::map<FolderId, bool> is_saving GUARDED_BY(mutex);
};
Held& held() {
  static Held folders;
  return folders;
}

int open_folder(const fs::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) return descriptor;
  throw ConfigError(fmt::format("cannot open the checkpoint folder '{}': {}", directory.string(),
                                std::generic_category().message(errno)));
}

FolderId id_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

/// False: another one has it. File systems without locks report another error; then we continue
/// without a lock.
bool lock(int descriptor) {
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace

RunLock::RunLock(const fs::path& directory, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kBetween{50};
  make_checkpoint_directory(directory);
  descriptor_ = open_folder(directory);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!lock(descriptor_)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      ::close(descriptor_);
      throw ConfigError(fmt::format(
          "another run is saving into '{}': choose another folder, or end that run first. {}",
          directory.string(), kUnknownLauncherHint));
    }
    std::this_thread::sleep_for(kBetween);
  }
  try {
    const fs::path probe = make_temporary_folder(directory, checkpoint_folder_name(0));
    std::error_code ignored;
    fs::remove(probe, ignored);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  Held& folders = held();
  MutexLock guard(folders.mutex);
  folders.is_saving.emplace(id_of(descriptor_), false);
}

RunLock::~RunLock() {
  Held& folders = held();
  MutexLock guard(folders.mutex);
  folders.is_saving.erase(id_of(descriptor_));
  ::close(descriptor_);
}

SaveLock::SaveLock(const fs::path& directory) {
  descriptor_ = open_folder(directory);
  Held& folders = held();
  MutexLock guard(folders.mutex);
  const auto own = folders.is_saving.find(id_of(descriptor_));
  is_lent_ = own != folders.is_saving.end();
  const bool is_free = is_lent_ ? !std::exchange(own->second, true) : lock(descriptor_);
  if (is_free) return;
  ::close(descriptor_);
  throw RuntimeError(fmt::format("another run is saving into '{}'", directory.string()));
}

SaveLock::~SaveLock() {
  if (is_lent_) {
    Held& folders = held();
    MutexLock guard(folders.mutex);
    const auto own = folders.is_saving.find(id_of(descriptor_));
    if (own != folders.is_saving.end()) own->second = false;
  }
  ::close(descriptor_);
}

}  // namespace penstock::train
