#include "penstock/probe/concurrent.h"

#include <fmt/format.h>

#include <exception>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/process/mutex.h"

namespace penstock::probe {

namespace {

class ThreadGroup {
 public:
  ThreadGroup(int threads, Seconds budget, const std::function<std::function<double()>()>& make)
      : size_(threads), budget_(budget), make_(make), ready_(threads) {}
  ~ThreadGroup() { join(); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  void start() {
    for (int i = 0; i < size_; ++i) {
      try {
        threads_.emplace_back([this] { run(); });
      } catch (const std::system_error& error) {
        ready_.count_down(size_ - i);  // those that did start must not wait for the rest
        throw RuntimeError(
            fmt::format("cannot start thread {} of {}: {}", i + 1, size_, error.what()));
      }
    }
  }

  std::vector<double> finish() {
    join();
    MutexLock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    return std::move(samples_);
  }

 private:
  void run() {
    bool arrived = false;
    try {
      const std::function<double()> work = make_();
      arrived = true;
      ready_.arrive_and_wait();
      Repetition repetition(budget_);
      while (repetition.more()) repetition.add(work());
      MutexLock lock(mutex_);
      samples_.insert(samples_.end(), repetition.samples().begin(), repetition.samples().end());
    } catch (...) {
      if (!arrived) ready_.count_down();
      MutexLock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  void join() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  int size_;
  Seconds budget_;
  const std::function<std::function<double()>()>& make_;
  std::latch ready_;
  Mutex mutex_;
  std::vector<double> samples_ GUARDED_BY(mutex_);
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace

Measurement measure_concurrently(int threads, Seconds budget,
                                 const std::function<std::function<double()>()>& make) {
  ThreadGroup group(threads, budget, make);
  group.start();
  return measurement_of(group.finish());
}

}  // namespace penstock::probe
