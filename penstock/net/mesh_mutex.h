// Who may touch the state of a mesh: its own thread, or one that sends, posts or waits while nobody
// else is at it. Internal to net.
//
//   std::lock_guard lock(state.mutex);                    // the mesh's thread
//   std::unique_lock lock(state.mutex, std::try_to_lock); // any other: it never waits
#pragma once

#include <mutex>

namespace penstock::net {

/// A thread that has one takes no other, so that what a message's end calls may send the next one.
class MeshMutex {
 public:
  void lock() {
    mutex_.lock();
    is_mine() = true;
  }
  bool try_lock() {
    if (is_mine() || !mutex_.try_lock()) return false;
    is_mine() = true;
    return true;
  }
  void unlock() {
    is_mine() = false;
    mutex_.unlock();
  }

 private:
  static bool& is_mine() {
    thread_local bool mine = false;
    return mine;
  }

  std::mutex mutex_;
};

}  // namespace penstock::net
