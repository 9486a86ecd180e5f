#include "penstock/runtime/fabric/mesh/sum_service.h"

#include <ATen/Parallel.h>

#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

SumService::SumService(std::function<void(std::exception_ptr)> on_failure)
    : on_failure_(std::move(on_failure)), thread_([this] { run(); }) {}

void SumService::stop() {
  std::map<std::pair<int, uint64_t>, Task> left_out;
  {
    MutexLock lock(mutex_);
    ends_ = true;
    left_out.swap(tasks_);
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void SumService::add(int urgency, Task task) {
  MutexLock lock(mutex_);
  if (ends_) return;
  tasks_.emplace(std::pair(-urgency, next_++), std::move(task));
  changed_.notify_all();
}

void SumService::run() {
  // libtorch initialises each thread lazily, at the first parallel loop, and would undo the next
  // line. Additions are bound by memory: one thread is enough for what a NIC brings.
  at::get_num_threads();
  at::set_num_threads(1);
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      const auto ready = [this]() NO_THREAD_SAFETY_ANALYSIS { return ends_ || !tasks_.empty(); };
      while (!changed_.wait_until(mutex_, wait_for(std::chrono::hours(1)).deadline, ready))
        continue;
      if (ends_) return;
      task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
    }
    try {
      task();
    } catch (...) {
      on_failure_(std::current_exception());
    }
  }
}

}  // namespace penstock::runtime
