// The intra-op threads of the calling thread while it measures.
#pragma once

#include <ATen/Parallel.h>

namespace penstock::model {

/// Sets the intra-op thread count of a thread; restores it on destruction.
class ThreadCount {
 public:
  // Reading the count first makes libtorch do its per-thread initialisation now; later it would
  // undo the setting.
  explicit ThreadCount(int threads) : before_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace penstock::model
