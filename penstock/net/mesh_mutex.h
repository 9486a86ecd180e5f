// Who may touch the state of a mesh: its own thread, or one that sends, posts or waits while nobody
// else is at it. Internal to net.
//
//   std::lock_guard lock(state.mutex);                    // the mesh's thread
//   std::unique_lock lock(state.mutex, std::try_to_lock); // any other: it never waits
//   state.mutex.add(task);                                // is done by who has the mutex, or
//   if (!state.mutex.settle()) ...                        // by this thread, unless another is to
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace penstock::net {

/// A thread that has one takes no other.
class MeshMutex {
 public:
  using Task = std::function<void()>;

  /// Does the tasks first: what was added before comes before what this thread does.
  void lock() {
    mutex_.lock();
    held() = this;
    do_tasks();
  }
  bool try_lock() {
    if (held() != nullptr || !mutex_.try_lock()) return false;
    held() = this;
    return true;
  }
  /// Does the tasks first.
  void unlock() {
    do {
      do_tasks();
      held() = nullptr;
      mutex_.unlock();
      // One that was added since then has found the mutex taken.
    } while (waiting_ > 0 && try_lock());
  }

  /// To be done with the mutex held, in the order in which they are added. They must not throw.
  void add(Task task) {
    const std::lock_guard lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
    ++waiting_;
  }
  /// Sees to it that what has been added is done soon, by this thread or by the one that has the
  /// mutex. False: this thread may not do it, and no other is known to.
  bool settle() {
    if (held() == this) return true;
    if (held() != nullptr) return false;
    if (waiting_ > 0 && try_lock()) unlock();
    return true;
  }

 private:
  static const MeshMutex*& held() {
    thread_local const MeshMutex* mutex = nullptr;
    return mutex;
  }
  void do_tasks() {
    while (waiting_ > 0) {
      Task task;
      {
        const std::lock_guard lock(tasks_mutex_);
        task = std::move(tasks_.front());
        tasks_.pop_front();
        --waiting_;
      }
      task();
    }
  }

  std::mutex mutex_;
  std::mutex tasks_mutex_;
  std::deque<Task> tasks_;
  std::atomic<size_t> waiting_{0};
};

}  // namespace penstock::net
