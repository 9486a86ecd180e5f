// Work beside the interpreter: signals are served meanwhile, and its end waits for the work.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>

namespace penstock::python {

/// Without the GIL while it lives, for which the interpreter's end waits. A thread that begins or
/// ends one after that end has begun (a daemon's) stays in it for ever: Python would end it inside
/// C++ where it takes the GIL back.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

/// Work that the interpreter's end stops (`stop` becomes true) and waits for.
class RunningWork {
 public:
  explicit RunningWork(std::atomic<bool>& stop);
  ~RunningWork();
  RunningWork(const RunningWork&) = delete;
  RunningWork& operator=(const RunningWork&) = delete;

 private:
  std::atomic<bool>& stop_;
};

/// For Python's atexit: stops what runs on other threads and waits for it and for all WithoutGil, a
/// minute at most.
void end_work();

/// Runs on another thread without the GIL, so that Python's signals and other threads are served
/// meanwhile; what they raise (KeyboardInterrupt) sets `stop` and is raised after the work's end.
template <class Work>
auto interruptibly(std::atomic<bool>& stop, const Work& work) {
  stop.store(false);
  auto result = [&] {
    const WithoutGil without;
    return std::async(std::launch::async, [&] {
      const RunningWork running(stop);
      return work();
    });
  }();
  bool raised = false;
  while (true) {
    {
      const WithoutGil without;
      if (result.wait_for(std::chrono::milliseconds(raised ? 10'000 : 50)) ==
          std::future_status::ready)
        break;
    }
    if (!raised && PyErr_CheckSignals() != 0) {
      raised = true;
      stop.store(true);
    }
  }
  if (!raised) return result.get();
  throw pybind11::error_already_set();
}

}  // namespace penstock::python
