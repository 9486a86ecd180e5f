#include "penstock/runtime/shared_reduce.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <chrono>

namespace penstock::runtime {

WaitResult SharedReduce::barrier(CondVar::Deadline deadline, int64_t& waiting_ns) {
  const auto start = std::chrono::steady_clock::now();
  MutexLock lock(mutex_);
  if (closed_) return WaitResult::Closed;
  const int64_t mine = generation_;
  if (++arrived_ == replicas_) {
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
    return WaitResult::Ready;
  }
  const bool ready = changed_.wait_until(mutex_, deadline, [&]() NO_THREAD_SAFETY_ANALYSIS { return closed_ || generation_ != mine; });
  waiting_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  if (generation_ != mine) return WaitResult::Ready;
  return ready ? WaitResult::Closed : WaitResult::TimedOut;
}

void SharedReduce::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

WaitResult SharedReduce::run(int replica, model::Tensors& gradients, CondVar::Deadline deadline, int64_t& waiting_ns) {
  const at::NoGradGuard no_grad;
  contributions_[static_cast<size_t>(replica)] = &gradients;
  if (const WaitResult result = barrier(deadline, waiting_ns); result != WaitResult::Ready) return result;

  const size_t count = contributions_[0]->size();
  model::Tensors sums(count);
  for (size_t i = 0; i < count; ++i) {
    // The first replica that has this gradient lends its memory for the sum.
    for (const model::Tensors* contribution : contributions_) {
      const at::Tensor& part = (*contribution)[i];
      if (!part.defined()) continue;
      if (!sums[i].defined()) {
        sums[i] = part;
        continue;
      }
      const int64_t size = part.numel();
      const int64_t begin = size * replica / replicas_;
      const int64_t length = size * (replica + 1) / replicas_ - begin;
      if (length > 0) sums[i].view(-1).narrow(0, begin, length).add_(part.view(-1).narrow(0, begin, length));
    }
  }
  const WaitResult result = barrier(deadline, waiting_ns);
  if (result == WaitResult::Ready) gradients = std::move(sums);
  return result;
}

}  // namespace penstock::runtime
