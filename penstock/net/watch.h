// Waiting awake for what a message brings, and moving messages meanwhile.
//
//   if (!watch_until(*mesh, deadline, [&] { return is_there(); })) sleep_until_it_is();
#pragma once

#include <chrono>

#include "penstock/util/process/awake.h"
#include "penstock/util/process/core_needs.h"
#include "penstock/util/process/mutex.h"

namespace penstock::net {

/// What moves messages. Thread-safe.
class ProgressEngine {
 public:
  virtual ~ProgressEngine() = default;
  /// For who waits awake for what a message brings: uses the messages that have come, if no other
  /// thread is at it. What their ends call is called here then. Never blocks. Whether something
  /// moved.
  virtual bool look() = 0;
  /// While a thread watches, it looks all the time, and nobody else need be woken. False: it need
  /// not say when it ends.
  virtual bool begin_watch() { return false; }
  /// `sleeps`: what it waits for is not there yet.
  virtual void end_watch(bool /*sleeps*/) {}
};

/// Looks awake until `done()`, as long as something moves, and for as long as one waits awake
/// (util/awake.h) when nothing does; not at all without a core for it. Returns done(). Moves
/// `deadline` by the time during which the process was stopped.
template <class Done>
bool watch_until(ProgressEngine& engine, CondVar::Deadline& deadline, const Done& done) {
  if (done()) return true;
  if (!have_cores()) return false;
  struct Watch {
    explicit Watch(ProgressEngine& watched) : engine(watched), begun(engine.begin_watch()) {}
    ~Watch() {
      if (begun) engine.end_watch(sleeps);
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ProgressEngine& engine;
    const bool begun;
    bool sleeps = false;
  };
  Watch watch(engine);
  Awake awake;
  while (!done()) {
    watch.sleeps = std::chrono::steady_clock::now() >= deadline;
    if (watch.sleeps) return false;
    if (engine.look()) {
      awake.begin_again();
    } else if (!awake.goes_on()) {
      const auto late = awake.late();
      if (late > Patience::kTolerance) deadline += late;
      watch.sleeps = !done();
      return !watch.sleeps;
    }
  }
  return true;
}

}  // namespace penstock::net
