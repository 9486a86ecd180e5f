#include "penstock/runtime/fabric/local/stop_gate.h"

#include <algorithm>

namespace penstock::runtime {

StopGate::StopGate(const std::vector<const std::atomic<bool>*>& flags) {
  for (const std::atomic<bool>* flag : flags) {
    if (flag != nullptr) flags_.push_back(flag);
  }
}

bool StopGate::stop_asked() const {
  return stopped_.load(std::memory_order_relaxed) ||
         std::any_of(flags_.begin(), flags_.end(), [](const std::atomic<bool>* flag) {
           return flag->load(std::memory_order_relaxed);
         });
}

bool StopGate::enter(MiniBatchId mini_batch) {
  MutexLock lock(mutex_);
  if (limit_ == INT64_MAX && stop_asked()) limit_ = started_;
  if (mini_batch.value > limit_) return false;
  started_ = std::max(started_, mini_batch.value);
  return true;
}

int64_t StopGate::last_started() const {
  MutexLock lock(mutex_);
  return started_;
}

}  // namespace penstock::runtime
