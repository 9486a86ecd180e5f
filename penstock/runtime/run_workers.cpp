#include "penstock/runtime/run_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "penstock/runtime/fabric/failure.h"
#include "penstock/util/error.h"
#include "penstock/util/process/mutex.h"

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

class WorkerThreads::Thread {
 public:
  Thread() : thread_([this] { work(); }) {}

  ~Thread() {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }

  void start(std::function<void()> task) {
    MutexLock lock(mutex_);
    task_ = std::move(task);
    changed_.notify_all();
  }

  void wait() {
    MutexLock lock(mutex_);
    wait_until([&]() NO_THREAD_SAFETY_ANALYSIS { return task_ == nullptr; });
  }

 private:
  template <class Ready>
  void wait_until(Ready ready) REQUIRES(mutex_) {
    while (!changed_.wait_until(mutex_, wait_for(std::chrono::hours(1)).deadline, ready)) continue;
  }

  void work() {
    while (true) {
      const std::function<void()>* task = nullptr;
      {
        MutexLock lock(mutex_);
        wait_until([&]() NO_THREAD_SAFETY_ANALYSIS { return task_ != nullptr || ends_; });
        if (task_ == nullptr) return;
        task = &task_;  // nobody changes it before it is done
      }
      (*task)();
      MutexLock lock(mutex_);
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::function<void()> task_ GUARDED_BY(mutex_);  ///< null: none, or done
  bool ends_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;  ///< last: it uses the others
};

WorkerThreads::WorkerThreads() = default;
WorkerThreads::~WorkerThreads() = default;

void WorkerThreads::start(size_t i, std::function<void()> task) {
  if (threads_.size() <= i) threads_.resize(i + 1);
  if (threads_[i] == nullptr) threads_[i] = std::make_unique<Thread>();
  threads_[i]->start(std::move(task));
}

void WorkerThreads::wait() {
  for (const auto& thread : threads_) {
    if (thread != nullptr) thread->wait();
  }
}

void run_workers(const std::vector<std::unique_ptr<StageWorker>>& workers, WorkerThreads& threads,
                 Fabric& fabric, const RunOptions& options) {
  const std::exception_ptr out_of_memory =
      std::make_exception_ptr(RuntimeError("cannot start the workers' threads: out of memory"));
  Returns returns(workers.size());
  std::exception_ptr failure;
  size_t started = 0;
  for (; started < workers.size(); ++started) {
    try {
      threads.start(started, [&returns, i = started, worker = workers[started].get()]() {
        worker->run();
        returns.add(i, worker->complete());
      });
    } catch (...) {
      failure = start_failure(started, workers.size(), out_of_memory);
      fabric.fail(failure);
      returns.fail();
      break;
    }
  }
  // Also when on_stuck throws: they use what is here.
  struct Waiting {
    WorkerThreads& threads;
    ~Waiting() { threads.wait(); }
  } waiting{threads};
  if (options.on_stuck && !returns.wait(started, options.stuck_after))
    options.on_stuck(stuck_text(workers, returns, failure, fabric, options));
}

}  // namespace penstock::runtime
