// When a device did the work of a worker's actions: an event behind each, read later, so that
// nobody waits for the device. Internal to runtime.
//
//   DeviceTimeline timeline(device.compute());
//   timeline.begin(action);  ...  timeline.end(waits);
//   timeline.take([&](const schedule::TimelineEvent& event) { ... }, /*all=*/false);
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "penstock/model/device/device_stream.h"
#include "penstock/schedule/timeline.h"

namespace penstock::runtime {

/// Not thread-safe: its worker owns it. Times are those of steady_clock: that of the first event is
/// read with the device idle, the others follow from the device's own clock, within what the host
/// has seen.
class DeviceTimeline {
 public:
  /// Blocks until the stream has done its work.
  explicit DeviceTimeline(model::DeviceStream& stream);

  void begin(const schedule::Action& action);
  /// `waits`: what the action took was waiting for another worker.
  void end(bool waits);
  /// Gives the actions that are done to `taken`, in their order; with `all`, waits for the others.
  void take(const std::function<void(const schedule::TimelineEvent&)>& taken, bool all);

 private:
  struct Open {
    schedule::Action action = {};
    bool waits = false;
    model::EventPtr begin = {};
    model::EventPtr end = {};
  };

  model::DeviceStream& stream_;
  model::EventPtr last_;  ///< whose time is known
  int64_t last_ns_ = 0;
  int64_t not_done_ns_ = 0;  ///< when the first of `open_` was last found to be under way
  std::deque<Open> open_;
};

}  // namespace penstock::runtime
