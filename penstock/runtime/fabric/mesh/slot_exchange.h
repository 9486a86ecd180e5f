// Tensors that workers of one rank leave for each other, by reference, under a key. Internal to
// fabric/mesh.
#pragma once

#include <map>
#include <tuple>

#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
template <class Key, class Value>
class SlotExchange {
 public:
  void put(const Key& key, Value value) {
    MutexLock lock(mutex_);
    slots_.insert_or_assign(key, std::move(value));
    changed_.notify_all();
  }
  WaitResult take(const Key& key, Value& value, Wait& wait) {
    MutexLock lock(mutex_);
    changed_.wait_awake_until(mutex_, wait.deadline, [&]() NO_THREAD_SAFETY_ANALYSIS {
      return closed_ || slots_.contains(key);
    });
    if (closed_) return WaitResult::Closed;
    const auto found = slots_.find(key);
    if (found == slots_.end()) return WaitResult::TimedOut;
    value = std::move(found->second);
    slots_.erase(found);
    return WaitResult::Ready;
  }
  /// Wakes everybody; all later calls return Closed.
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<Key, Value> slots_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace penstock::runtime
