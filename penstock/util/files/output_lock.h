// An output file belongs to one run at a time: two processes that a launcher has started without
// telling them of each other would both write it.
//
//   const OutputLock lock("history.json");   // refused while another run has it
//
// Thread-safe.
#pragma once

#include <chrono>
#include <filesystem>
#include <string_view>

namespace penstock {

/// What to do about two runs that are meant to be one job, for messages.
inline constexpr std::string_view kUnknownLauncherHint =
    "If one launcher has started both as ranks of a job, its variables are not known here: give "
    "each RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";

/// While it exists no other OutputLock can be had for the file, on any machine that sees it and
/// whose file system has locks. A hidden file beside it, ".history.json.lock", is there meanwhile.
class OutputLock {
 public:
  /// Waits for up to `patience` for a run that is just ending. Throws ConfigError that names the
  /// process that has it. Does nothing for devices and pipes, and where no lock can be made.
  explicit OutputLock(const std::filesystem::path& file, std::chrono::milliseconds patience = {});
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace penstock
