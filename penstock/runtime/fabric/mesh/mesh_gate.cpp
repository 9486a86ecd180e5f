#include "penstock/runtime/fabric/mesh/mesh_gate.h"

#include <algorithm>

namespace penstock::runtime {

MeshGate::Entry MeshGate::enter(MiniBatchId mini_batch) {
  MutexLock lock(mutex_);
  if (!asked_ && flag_ != nullptr && flag_->load(std::memory_order_relaxed)) {
    asked_ = true;
    // From here on nobody passes until rank 0 has said where the end is.
    frozen_ = true;
    return Entry::Asks;
  }
  // No deadline: the run's own, which closes the gate, is that of the worker that waits elsewhere.
  const auto forever = std::chrono::steady_clock::now() + std::chrono::hours(24 * 365);
  changed_.wait_until(mutex_, forever,
                      [this]() NO_THREAD_SAFETY_ANALYSIS { return !frozen_ || closed_; });
  if (mini_batch.value > limit_) return Entry::Stays;
  started_ = std::max(started_, mini_batch.value);
  return Entry::Enters;
}

bool MeshGate::wants_stop() {
  MutexLock lock(mutex_);
  if (asked_ || frozen_ || limit_ != INT64_MAX || flag_ == nullptr || !flag_->load()) return false;
  asked_ = true;
  return true;
}

int64_t MeshGate::freeze() {
  MutexLock lock(mutex_);
  asked_ = true;
  if (limit_ == INT64_MAX) frozen_ = true;
  return started_;
}

void MeshGate::set_limit(int64_t limit) {
  MutexLock lock(mutex_);
  limit_ = limit;
  frozen_ = false;
  changed_.notify_all();
}

void MeshGate::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

int64_t MeshGate::last_started() const {
  MutexLock lock(mutex_);
  return started_;
}

bool StopRound::begin() {
  MutexLock lock(mutex_);
  if (begun_) return false;
  return begun_ = true;
}

bool StopRound::on_frozen(int64_t started, int64_t& limit) {
  MutexLock lock(mutex_);
  limit_ = std::max(limit_, started);
  limit = limit_;
  return ++frozen_ == ranks_;
}

bool MeshStop::begin(MiniBatchId mini_batch) {
  while (true) {
    switch (gate_.enter(mini_batch)) {
      case MeshGate::Entry::Enters:
        return true;
      case MeshGate::Entry::Stays:
        return false;
      case MeshGate::Entry::Asks:
        ask();
    }
  }
}

void MeshStop::ask() {
  if (notes_.is_first())
    on_ask();
  else
    notes_.tell(0, NoteKind::AskStop);
}

void MeshStop::look() {
  if (gate_.wants_stop()) ask();
}

void MeshStop::on_ask() {
  if (!round_.begin()) return;
  notes_.tell_all(NoteKind::Freeze);
  on_frozen(gate_.freeze());
}

void MeshStop::on_frozen(int64_t started) {
  int64_t limit = 0;
  if (!round_.on_frozen(started, limit)) return;
  notes_.tell_all(NoteKind::Limit, limit);
  gate_.set_limit(limit);
}

}  // namespace penstock::runtime
