// The summation service of a rank (BytePS, OSDI 2020, section 3.2): one thread that adds what has
// come, the most urgent first, while the workers compute and the mesh moves bytes. Internal to
// fabric/mesh.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class SumService {
 public:
  using Task = std::function<void()>;

  /// `on_failure` gets what a task throws; it must not throw.
  explicit SumService(std::function<void(std::exception_ptr)> on_failure);
  ~SumService() { stop(); }

  /// Tasks of the highest urgency first, then in their order. Never blocks; does nothing after
  /// stop().
  void add(int urgency, Task task);
  /// Blocks until the task that runs has ended; the others are left out. From one thread, which is
  /// not the service's own.
  void stop();

 private:
  void run();

  std::function<void(std::exception_ptr)> on_failure_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<int, uint64_t>, Task> tasks_ GUARDED_BY(mutex_);
  uint64_t next_ GUARDED_BY(mutex_) = 0;
  bool ends_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace penstock::runtime
