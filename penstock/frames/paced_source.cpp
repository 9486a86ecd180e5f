#include "penstock/frames/paced_source.h"

#include <fmt/format.h>

#include <cmath>
#include <thread>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::frames {

PacedSource::PacedSource(std::unique_ptr<FrameSource> source, double frames_per_second,
                         LateFrames late)
    : source_(std::move(source)), frames_per_second_(frames_per_second), late_(late) {
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
  return fmt::format("{}, played at {:g} frames/s", source_->describe(), frames_per_second_);
}

int64_t PacedSource::due_ns() const {
  return *start_ns_ + std::llround(static_cast<double>(next_) * 1e9 / frames_per_second_);
}

void PacedSource::catch_up() {
  constexpr double kSlack_ns = 1e6;
  const double period_ns = 1e9 / frames_per_second_;
  const auto late_ns = static_cast<double>(steady_ns() - due_ns());
  if (late_ns <= 2 * period_ns + kSlack_ns) return;
  is_slow_ = true;
  const int64_t late = std::llround(std::floor(late_ns / period_ns));
  const int64_t skipped = source_->skip(late);
  skipped_ += skipped;
  next_ += skipped;
  if (skipped < late) *start_ns_ += steady_ns() - due_ns();
}

SourceCounts PacedSource::counts() const {
  SourceCounts counts = source_->counts();
  counts.skipped += skipped_;
  return counts;
}

std::string PacedSource::remarks() const {
  std::string text = source_->remarks();
  if (!is_slow_ || delivered_ < 2) return text;
  const double rate =
      static_cast<double>(delivered_ - 1) * 1e9 / static_cast<double>(newest_ns_ - first_ns_ + 1);
  if (!text.empty()) text += "; ";
  text += fmt::format("the source did not keep {:g} frames/s: it delivered {:.4g}",
                      frames_per_second_, rate);
  if (skipped_ > 0) text += fmt::format(", and left out {} late frames", skipped_);
  return text;
}

Next PacedSource::next(Frame& frame, Deadline deadline) {
  if (!start_ns_) start_ns_ = steady_ns();
  if (!has_ahead_) {
    if (late_ == LateFrames::LeaveOut) catch_up();
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
  ++next_;
  newest_ns_ = steady_ns();
  if (++delivered_ == 1) first_ns_ = newest_ns_;
  return Next::Ready;
}

}  // namespace penstock::frames
