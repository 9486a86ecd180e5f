#include "penstock/runtime/fabric/mesh/sum_service.h"

#include <ATen/Parallel.h>

#include "penstock/runtime/fabric/wait.h"

namespace penstock::runtime {

SumService::SumService(std::function<void(std::exception_ptr)> on_failure)
    : on_failure_(std::move(on_failure)), thread_([this] { run(); }) {}

void SumService::stop() {
  Additions left_out;
  {
    MutexLock lock(mutex_);
    ends_ = true;
    left_out.swap(tasks_);
    changed_.notify_all();
    const auto ready = [this]() NO_THREAD_SAFETY_ANALYSIS { return helped_ == 0; };
    while (!changed_.wait_until(mutex_, wait_for(std::chrono::hours(1)).deadline, ready)) continue;
  }
  if (thread_.joinable()) thread_.join();
}

void SumService::add(int urgency, Task task, Length length) {
  MutexLock lock(mutex_);
  if (ends_) return;
  tasks_.emplace(std::pair(-urgency, next_++), Addition{std::move(task), length});
  if (length == Length::Long || helpers_ == 0) changed_.notify_all();
}

SumService::Addition SumService::take() {
  Addition addition = std::move(tasks_.begin()->second);
  tasks_.erase(tasks_.begin());
  return addition;
}

void SumService::perform(const Task& task) {
  try {
    task();
  } catch (...) {
    on_failure_(std::current_exception());
  }
}

// ---- those who wait

void SumService::begin_help() {
  MutexLock lock(mutex_);
  ++helpers_;
}

void SumService::end_help() {
  MutexLock lock(mutex_);
  if (--helpers_ == 0 && !tasks_.empty()) changed_.notify_all();
}

bool SumService::help(const std::function<void(const Task&)>& around) {
  Addition addition;
  {
    MutexLock lock(mutex_);
    if (tasks_.empty()) return false;
    addition = take();
    ++helped_;
  }
  if (around && addition.length == Length::Long)
    around([&] { perform(addition.task); });
  else
    perform(addition.task);
  addition.task = nullptr;
  MutexLock lock(mutex_);
  if (--helped_ == 0 && ends_) changed_.notify_all();
  return true;
}

// ---- the thread

void SumService::run() {
  // libtorch initialises each thread lazily, at the first parallel loop, and would undo the next
  // line. Additions are bound by memory: one thread is enough for what a NIC brings.
  at::get_num_threads();
  at::set_num_threads(1);
  while (true) {
    Addition addition;
    {
      MutexLock lock(mutex_);
      const auto ready = [this]() NO_THREAD_SAFETY_ANALYSIS { return ends_ || !tasks_.empty(); };
      while (!changed_.wait_until(mutex_, wait_for(std::chrono::hours(1)).deadline, ready))
        continue;
      if (ends_) return;
      addition = take();
    }
    perform(addition.task);
  }
}

}  // namespace penstock::runtime
