#include "penstock/runtime/run_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <thread>

#include "penstock/runtime/fabric/failure.h"
#include "penstock/util/error.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

namespace {

/// Which workers' threads have come to their end.
class Returns {
 public:
  explicit Returns(size_t num_workers) : returned_(num_workers, 0) {}

  void add(size_t worker, bool complete) {
    MutexLock lock(mutex_);
    returned_[worker] = 1;
    ++num_returned_;
    failed_ = failed_ || !complete;
    changed_.notify_all();
  }

  /// The run has failed before a worker has.
  void fail() {
    MutexLock lock(mutex_);
    failed_ = true;
  }

  /// Blocks until the `started` workers have returned, or one has failed and they have not returned
  /// `patience` later; a run that goes well takes as long as it takes. Whether all have.
  bool wait(size_t started, std::chrono::milliseconds patience) {
    MutexLock lock(mutex_);
    const auto all = [&]() NO_THREAD_SAFETY_ANALYSIS { return num_returned_ == started; };
    const auto ended = [&]() NO_THREAD_SAFETY_ANALYSIS { return failed_ || all(); };
    while (!changed_.wait_until(mutex_, wait_for(std::chrono::hours(1)).deadline, ended)) continue;
    return changed_.wait_until(mutex_, wait_for(patience).deadline, all);
  }

  bool has_returned(size_t worker) {
    MutexLock lock(mutex_);
    return returned_[worker] != 0;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<char> returned_ GUARDED_BY(mutex_);
  size_t num_returned_ GUARDED_BY(mutex_) = 0;
  bool failed_ GUARDED_BY(mutex_) = false;
};

/// What the exception that is being handled means; `out_of_memory` when there is none for that.
std::exception_ptr start_failure(size_t thread, size_t num_threads,
                                 const std::exception_ptr& out_of_memory) noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return out_of_memory;
    } catch (const std::exception& error) {
      return std::make_exception_ptr(RuntimeError(
          fmt::format("cannot start thread {} of {}: {}", thread, num_threads, error.what())));
    }
  } catch (...) {
    return out_of_memory;
  }
}

/// What is known of a run whose workers do not return; `failure`: what kept threads from starting.
std::string stuck_text(const std::vector<std::unique_ptr<StageWorker>>& workers, Returns& returns,
                       std::exception_ptr failure, Fabric& fabric, const RunOptions& options) {
  std::vector<WorkerId> stuck;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!returns.has_returned(i)) {
      stuck.push_back(workers[i]->id());
    } else if (!failure) {
      failure = workers[i]->failure();
    }
  }
  return fmt::format("{}\n{:.1f} s later these workers have not returned:{}",
                     failure ? describe(failure).text : "another rank has failed",
                     std::chrono::duration<double>(options.stuck_after).count(),
                     fabric.board().report(stuck));
}

}  // namespace

void run_workers(const std::vector<std::unique_ptr<StageWorker>>& workers, Fabric& fabric,
                 const RunOptions& options) {
  const std::exception_ptr out_of_memory =
      std::make_exception_ptr(RuntimeError("cannot start the workers' threads: out of memory"));
  Returns returns(workers.size());
  std::exception_ptr failure;
  std::vector<std::jthread> threads;
  threads.reserve(workers.size());
  for (size_t i = 0; i < workers.size(); ++i) {
    try {
      threads.emplace_back([&returns, i, worker = workers[i].get()]() {
        worker->run();
        returns.add(i, worker->complete());
      });
    } catch (...) {
      failure = start_failure(i, workers.size(), out_of_memory);
      fabric.fail(failure);
      returns.fail();
      break;
    }
  }
  if (!options.on_stuck || returns.wait(threads.size(), options.stuck_after)) return;
  options.on_stuck(stuck_text(workers, returns, failure, fabric, options));
}

}  // namespace penstock::runtime
