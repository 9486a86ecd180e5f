// The threads of the workers of this rank. Internal to runtime.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "penstock/runtime/stage_worker.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// A thread for each worker, which lasts from run to run: libraries keep things for each thread
/// that they would otherwise make again in every run, such as cuDNN's choice of kernels and
/// OpenMP's threads. Its calls come from one thread at a time.
class WorkerThreads {
 public:
  WorkerThreads();
  /// Waits until the threads have done their tasks.
  ~WorkerThreads();

  /// Gives thread `i` a task; it must have done its last one. The task must not throw. Starts the
  /// thread where there is none; throws what std::thread throws.
  void start(size_t i, std::function<void()> task);
  /// Blocks until all threads have done their tasks.
  void wait();

 private:
  class Thread;
  std::vector<std::unique_ptr<Thread>> threads_;
};

/// Runs every worker in a thread of its own and blocks until all have returned. A thread that
/// cannot be started is a failure of the run. Calls options.on_stuck when workers do not return
/// after a failure.
void run_workers(const std::vector<std::unique_ptr<StageWorker>>& workers, WorkerThreads& threads,
                 Fabric& fabric, const RunOptions& options);

}  // namespace penstock::runtime
