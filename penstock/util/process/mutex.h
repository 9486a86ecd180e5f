// A mutex that clang's -Wthread-safety can check: members say GUARDED_BY(mutex_), and an access
// without the lock is a compile-time warning under clang; other compilers ignore the annotations.
//
//   Mutex mutex_;
//   int64_t started_ GUARDED_BY(mutex_) = 0;
//   ...
//   MutexLock lock(mutex_);  ++started_;
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "penstock/util/process/awake.h"
#include "penstock/util/process/core_needs.h"
#include "penstock/util/process/patience.h"

#if defined(__clang__)
#define PENSTOCK_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PENSTOCK_THREAD_ANNOTATION(x)
#endif

#define PENSTOCK_CAPABILITY(x) PENSTOCK_THREAD_ANNOTATION(capability(x))
#define PENSTOCK_SCOPED_CAPABILITY PENSTOCK_THREAD_ANNOTATION(scoped_lockable)
#define GUARDED_BY(x) PENSTOCK_THREAD_ANNOTATION(guarded_by(x))
#define REQUIRES(...) PENSTOCK_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) PENSTOCK_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) PENSTOCK_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS PENSTOCK_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace penstock {

class PENSTOCK_CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class PENSTOCK_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Waits always have a deadline. Time during which the process is stopped (SIGSTOP, Ctrl-Z) does
/// not count.
class CondVar {
 public:
  using Deadline = Patience::Deadline;

  /// Waits until `ready()` holds or the deadline passes; returns ready(). The mutex is held on
  /// entry, on return, and while `ready` runs. Moves `deadline` by the time during which the
  /// process was stopped.
  template <class Ready>
  bool wait_until(Mutex& mutex, Deadline& deadline, Ready ready)
      REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    Patience patience(deadline, std::chrono::steady_clock::now());
    bool result = ready();
    while (!result && !patience.is_over()) {
      condition_.wait_until(lock, patience.next_look());
      patience.look(std::chrono::steady_clock::now());
      result = ready();
    }
    deadline = patience.deadline();
    lock.release();
    return result;
  }
  template <class Ready>
  bool wait_until(Mutex& mutex, const Deadline& deadline, Ready ready)
      REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    Deadline moving = deadline;
    return wait_until(mutex, moving, ready);
  }
  /// The same for what is expected within microseconds: looks for a notify_all() without the mutex
  /// at first (util/awake.h), if there are cores for it, and does `meanwhile` again and again.
  template <class Ready, class Meanwhile = void (*)()>
  bool wait_awake_until(
      Mutex& mutex, Deadline& deadline, Ready ready, Meanwhile meanwhile = [] {})
      REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    Awake awake;
    bool goes_on = have_cores() && deadline > std::chrono::steady_clock::now();
    while (goes_on && !ready()) {
      const uint64_t seen = notified_;
      mutex.unlock();
      do {
        meanwhile();
        goes_on = awake.goes_on();
      } while (goes_on && notified_ == seen);
      mutex.lock();
    }
    if (goes_on) return true;
    const auto late = awake.late();
    if (late > Patience::kTolerance) deadline += late;  // the process was stopped
    return wait_until(mutex, deadline, ready);
  }
  void notify_all() {
    ++notified_;
    condition_.notify_all();
  }

 private:
  std::condition_variable condition_;
  std::atomic<uint64_t> notified_ = 0;
};

}  // namespace penstock
