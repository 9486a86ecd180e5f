// The summation service of a rank (BytePS, OSDI 2020, section 3.2): one thread that adds what has
// come, the most urgent first, while the workers compute and the mesh moves bytes. A worker that
// waits for a sum adds along, and alone what is short: to wake a thread takes longer. Internal to
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
  enum class Length : uint8_t { Short, Long };

  /// `on_failure` gets what a task throws; it must not throw.
  explicit SumService(std::function<void(std::exception_ptr)> on_failure);
  ~SumService() { stop(); }

  /// Tasks of the highest urgency first, then in their order. Never blocks; does nothing after
  /// stop(). A short one wakes no thread while another helps.
  void add(int urgency, Task task, Length length = Length::Long);
  /// Around a time in which the caller calls help() again and again.
  void begin_help();
  void end_help();
  /// Does the most urgent task; false: there is none. A long one within `around`, if given.
  bool help(const std::function<void(const Task&)>& around = {});
  /// Blocks until the tasks that run have ended; the others are left out. From one thread, in none
  /// of them.
  void stop();

 private:
  struct Addition {
    Task task;
    Length length = Length::Long;
  };
  using Additions = std::map<std::pair<int, uint64_t>, Addition>;

  void run();
  /// The most urgent one; there must be one.
  Addition take() REQUIRES(mutex_);
  void perform(const Task& task);

  std::function<void(std::exception_ptr)> on_failure_;
  Mutex mutex_;
  CondVar changed_;
  Additions tasks_ GUARDED_BY(mutex_);
  uint64_t next_ GUARDED_BY(mutex_) = 0;
  bool ends_ GUARDED_BY(mutex_) = false;
  int helpers_ GUARDED_BY(mutex_) = 0;
  int helped_ GUARDED_BY(mutex_) = 0;  ///< tasks that helpers are doing
  std::jthread thread_;
};

}  // namespace penstock::runtime
