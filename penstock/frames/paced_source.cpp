#include "penstock/frames/paced_source.h"

#include <fmt/format.h>

#include <cmath>
#include <thread>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/steady_ns.h"

namespace penstock::frames {

PacedSource::PacedSource(std::unique_ptr<FrameSource> source, double frames_per_second)
    : source_(std::move(source)), frames_per_second_(frames_per_second) {
  // Written so that it refuses NaN, too.
  if (!(frames_per_second >= kMinFramesPerSecond && frames_per_second <= kMaxFramesPerSecond)) {
    throw ConfigError(fmt::format("expected a rate of {} to {} frames per second, found {}",
                                  kMinFramesPerSecond, kMaxFramesPerSecond, frames_per_second));
  }
  if (source_->is_live()) {
    throw ConfigError(
        fmt::format("{}: its frames come at a rate of their own; only files, folders "
                    "and generated frames can be delivered at a rate",
                    source_->describe()));
  }
}

std::string PacedSource::describe() const {
  return fmt::format("{}, delivered at {:g} frames/s", source_->describe(), frames_per_second_);
}

int64_t PacedSource::due_ns() const {
  return *start_ns_ + std::llround(static_cast<double>(delivered_) * 1e9 / frames_per_second_);
}

Next PacedSource::next(Frame& frame, Deadline deadline) {
  if (!start_ns_) start_ns_ = steady_ns();
  if (!has_ahead_) {
    const Next found = source_->next(ahead_, deadline);
    if (found != Next::Ready) return found;
    has_ahead_ = true;
  }
  const Deadline due{std::chrono::nanoseconds(due_ns())};
  std::this_thread::sleep_until(std::min(due, deadline));
  if (due > deadline) return Next::Stalled;
  ahead_.captured_ns = due_ns();
  std::swap(frame, ahead_);
  has_ahead_ = false;
  ++delivered_;
  return Next::Ready;
}

}  // namespace penstock::frames
