// A checkpoint folder belongs to one run at a time: a run holds it from its beginning to its end,
// and each save holds it while it writes. A lock ends with its process, whatever becomes of that.
//
//   const RunLock lock("weights");          // refused if another run has it
//   save_checkpoint("weights", model, ...);
//
// Thread-safe.
#pragma once

#include <chrono>
#include <filesystem>

namespace penstock::train {

/// While it exists no other process can save into the folder; this process can.
class RunLock {
 public:
  /// Makes the folder and tries whether it can be written to, so that nothing is computed in vain.
  /// Waits for up to `patience` for a run that is just ending. Throws ConfigError, also when
  /// another run has the folder or is saving into it.
  explicit RunLock(const std::filesystem::path& directory, std::chrono::milliseconds patience = {});
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// While it exists no other process or thread can save into the folder. Throws RuntimeError when
/// another one is saving, or another process has the folder's RunLock.
class SaveLock {
 public:
  explicit SaveLock(const std::filesystem::path& directory);
  ~SaveLock();
  SaveLock(const SaveLock&) = delete;
  SaveLock& operator=(const SaveLock&) = delete;

 private:
  int descriptor_ = -1;
  bool is_lent_ = false;  ///< by this process's RunLock
};

}  // namespace penstock::train
