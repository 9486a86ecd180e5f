// When a worker did each of its actions and how long it waited in them, and how far its host may
// run ahead of its GPU. Internal to runtime.
//
//   timeline.start();                                            // in the worker's thread
//   timeline.begin(action);  ...  timeline.waited(ns);  ...  timeline.end();
//   timeline.keep_done();
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/runtime/device/device_timeline.h"
#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/run.h"

namespace penstock::runtime {

/// Not thread-safe: its worker owns it. On the CPU the times are those of the host; on a GPU they
/// are the device's own, which are known later (DeviceTimeline).
class WorkerTimeline {
 public:
  WorkerTimeline(WorkerId worker, const Run& run, const WorkerDevice& device);

  /// Before the first action, on the worker's device.
  void start();
  void begin(const schedule::Action& action);
  /// For another worker, in the action that has begun last.
  void waited(int64_t ns) { waiting_ns_ += ns; }
  void end();
  /// Keeps the events of what is done by now.
  void keep_done();
  /// Behind the last action: what is waited for from now on counts until finish().
  void begin_rest() { waiting_ns_ = 0; }
  /// Waits for the device, and keeps all events.
  void finish();

  /// Where the host runs ahead of the device: not by more than a few forwards.
  void keep_pace();

  std::vector<schedule::TimelineEvent> take_events() { return std::move(events_); }
  int64_t waiting_ns() const { return total_waiting_ns_; }

 private:
  /// Whether anybody wants the next event.
  bool keeps() const;
  void keep(const schedule::TimelineEvent& event);

  WorkerId worker_;
  const Run& run_;
  const WorkerDevice& device_;
  size_t max_events_;
  std::optional<DeviceTimeline> device_timeline_;  ///< where the device is a GPU
  std::deque<model::EventPtr> forwards_;           ///< the ends of those that the host is ahead of
  schedule::TimelineEvent current_;
  std::vector<schedule::TimelineEvent> events_;
  int64_t waiting_ns_ = 0;  ///< in the current action
  int64_t total_waiting_ns_ = 0;
};

}  // namespace penstock::runtime
