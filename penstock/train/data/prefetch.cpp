#include "penstock/train/data/prefetch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/util/check.h"

namespace penstock::train {

namespace {

/// For one wait; waits are repeated.
CondVar::Deadline in_a_while() { return std::chrono::steady_clock::now() + std::chrono::hours(1); }

}  // namespace

PrefetchedBatches::PrefetchedBatches(const runtime::BatchSource& source, PrefetchOptions options)
    : source_(source), options_(std::move(options)), slots_(options_.order.size()) {
  PENSTOCK_CHECK(options_.threads >= 1 && options_.ahead >= 1, options_.threads, options_.ahead);
  std::sort(options_.order.begin(), options_.order.end());
  for (int t = 0; t < options_.threads; ++t) threads_.emplace_back([this] { work(); });
}

PrefetchedBatches::~PrefetchedBatches() {
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

int64_t PrefetchedBatches::next_slot() {
  MutexLock lock(mutex_);
  const auto end = std::ssize(options_.order);
  while (!changed_.wait_until(mutex_, in_a_while(), [this, end] {
    while (next_ < end && slots_[static_cast<size_t>(next_)].state != State::Waiting) ++next_;
    return is_ending_ || next_ == end || outstanding_ < options_.ahead;
  })) {
  }
  if (is_ending_ || next_ == end) return -1;
  slots_[static_cast<size_t>(next_)].state = State::Working;
  ++outstanding_;
  return next_++;
}

void PrefetchedBatches::work() {
  const model::MemoryScope scope(MemoryKind::Inputs);
  for (int64_t i = next_slot(); i >= 0; i = next_slot()) {
    Slot made{.state = State::Ready};
    try {
      const MicroBatchId b = options_.order[static_cast<size_t>(i)];
      made.inputs = options_.for_transfer ? source_.inputs_for_transfer(b) : source_.inputs(b);
    } catch (...) {
      made.failure = std::current_exception();
    }
    {
      MutexLock lock(mutex_);
      slots_[static_cast<size_t>(i)] = std::move(made);
    }
    changed_.notify_all();
  }
}

model::Tensors PrefetchedBatches::inputs(MicroBatchId b) const {
  const auto found = std::lower_bound(options_.order.begin(), options_.order.end(), b);
  if (found == options_.order.end() || *found != b) return source_.inputs(b);
  Slot made;
  {
    MutexLock lock(mutex_);
    Slot& slot = slots_[static_cast<size_t>(found - options_.order.begin())];
    while (!changed_.wait_until(mutex_, in_a_while(),
                                [&slot] { return slot.state != State::Working; })) {
    }
    if (slot.state == State::Ready) --outstanding_;
    made = std::exchange(slot, {.state = State::Taken});
  }
  changed_.notify_all();
  if (made.state != State::Ready) return source_.inputs(b);
  if (made.failure) std::rethrow_exception(made.failure);
  return std::move(made.inputs);
}

}  // namespace penstock::train
