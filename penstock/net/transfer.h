// A message of bytes on its way between two ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/net/bytes.h"
#include "penstock/net/watch.h"
#include "penstock/util/process/mutex.h"

namespace penstock::net {

/// The name of a message between two ranks, unique among those of a run in one direction.
struct Tag {
  uint32_t run = 0;
  uint32_t channel = 0;
  uint64_t sequence = 0;
  auto operator<=>(const Tag&) const = default;
};

/// A part of a message that is left out, which differs from one of 0 bytes.
inline constexpr uint64_t kAbsent = UINT64_MAX;

/// Says where the parts of a message go, given their sizes in bytes (kAbsent for those left out,
/// whose memory is ignored). Called once, on the thread of the mesh or on one that waits. What it
/// throws ends the connection with that message.
using Place = std::function<std::vector<Memory>(const std::vector<uint64_t>& sizes)>;

/// Thread-safe.
class Transfer {
 public:
  /// `engine`: who waits awake helps it; null: nobody does.
  explicit Transfer(ProgressEngine* engine = nullptr) : engine_(engine) {}

  enum class Result : uint8_t {
    Done,      ///< sent: the memory is free; received: all of it is there
    TimedOut,  ///< not yet
    Closed,    ///< never will be: the run was closed or the peer is lost
  };

  /// Blocks until the transfer has ended or the deadline is there.
  Result wait(CondVar::Deadline deadline);
  bool is_done() const;
  /// Calls `then` when the transfer has ended, Done or Closed: on the thread of the mesh, on one
  /// that waits, or at once when it has ended already. It must neither block nor throw. At most one
  /// per transfer.
  void on_end(std::function<void(Result)> then);

  /// For the mesh.
  void end(Result result);

 private:
  bool has_ended() const {
    MutexLock lock(mutex_);
    return result_ != Result::TimedOut;
  }

  ProgressEngine* engine_;
  mutable Mutex mutex_;
  CondVar changed_;
  Result result_ GUARDED_BY(mutex_) = Result::TimedOut;
  std::function<void(Result)> then_ GUARDED_BY(mutex_);
};

}  // namespace penstock::net
