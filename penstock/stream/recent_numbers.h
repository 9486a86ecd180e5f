// The rate and the losses of a stream's last seconds, out of its numbers since the beginning: what
// passed between two looks is too little for a rate.
//
//   RecentNumbers recent(std::chrono::seconds(5));
//   recent.add(meter.whole()).fps;   // now and then
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <deque>

#include "penstock/stream/stream_meter.h"

namespace penstock::stream {

class RecentNumbers {
 public:
  /// The numbers are those of at least `window`, or of the whole stream while it is shorter.
  explicit RecentNumbers(std::chrono::nanoseconds window) : window_(window) {}

  /// Takes the numbers of the whole stream, and returns those of its end: `elapsed_ns`,
  /// `processed`, `fps`, `losses`, `deadline_misses`; the latencies stay those of the whole.
  StreamNumbers add(const StreamNumbers& whole);

 private:
  std::chrono::nanoseconds window_;
  std::deque<StreamNumbers> marks_ = {StreamNumbers{}};
};

}  // namespace penstock::stream
