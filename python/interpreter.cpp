#include "python/interpreter.h"

#include <unistd.h>

#include <memory>
#include <set>
#include <thread>

#include "penstock/util/error.h"
#include "penstock/util/process/mutex.h"

namespace penstock::python {

namespace {

struct AllWork {
  const pid_t process = getpid();
  Mutex mutex;
  CondVar changed;
  std::multiset<std::atomic<bool>*> stops GUARDED_BY(mutex);
  std::thread::id ended_by;  ///< set before `ending`
  std::atomic<bool> ending{false};
  /// Threads in a WithoutGil, which is counted before it looks at `ending`.
  std::atomic<int> without_gil{0};

  /// Another thread than the one that ends the interpreter goes no further once that has begun.
  void stay_if_ending() {
    if (!ending || ended_by == std::this_thread::get_id()) return;
    --without_gil;
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
};

/// Never destroyed: daemon threads outlive the program's static objects.
AllWork& all_work() {
  static AllWork& work = *std::make_unique<AllWork>().release();
  return work;
}

}  // namespace

WithoutGil::WithoutGil() : state_(PyEval_SaveThread()) {
  AllWork& all = all_work();
  ++all.without_gil;
  all.stay_if_ending();
}

WithoutGil::~WithoutGil() {
  AllWork& all = all_work();
  all.stay_if_ending();
  PyEval_RestoreThread(state_);
  --all.without_gil;
}

RunningWork::RunningWork(std::atomic<bool>& stop) : stop_(stop) {
  AllWork& all = all_work();
  MutexLock lock(all.mutex);
  if (all.ending) throw RuntimeError("the interpreter is ending");
  all.stops.insert(&stop_);
}

RunningWork::~RunningWork() {
  AllWork& all = all_work();
  MutexLock lock(all.mutex);
  all.stops.erase(all.stops.find(&stop_));
  all.changed.notify_all();
}

void end_work() {
  AllWork& all = all_work();
  if (getpid() != all.process) return;         // a fork: the threads that work are not in it
  const pybind11::gil_scoped_release release;  // callbacks of the last step need the GIL
  MutexLock lock(all.mutex);
  all.ended_by = std::this_thread::get_id();
  all.ending = true;
  for (std::atomic<bool>* stop : all.stops) stop->store(true);
  const auto is_over = [&]() NO_THREAD_SAFETY_ANALYSIS {
    return all.stops.empty() && all.without_gil == 0;
  };
  const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_over() && std::chrono::steady_clock::now() < latest) {
    // Nothing tells of the end of a WithoutGil.
    all.changed.wait_until(
        all.mutex, std::chrono::steady_clock::now() + std::chrono::milliseconds(5), is_over);
  }
}

}  // namespace penstock::python
