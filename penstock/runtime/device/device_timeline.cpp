#include "penstock/runtime/device/device_timeline.h"

#include <algorithm>

#include "penstock/util/process/steady_ns.h"

namespace penstock::runtime {

DeviceTimeline::DeviceTimeline(model::DeviceStream& stream) : stream_(stream) {
  stream.synchronize();
  last_ = stream.record(/*timed=*/true);
  last_->wait_on_host();
  last_ns_ = steady_ns();
}

void DeviceTimeline::begin(const schedule::Action& action) {
  open_.push_back({.action = action, .begin = stream_.record(/*timed=*/true)});
}

void DeviceTimeline::end(bool waits) {
  open_.back().waits = waits;
  open_.back().end = stream_.record(/*timed=*/true);
}

void DeviceTimeline::take(const std::function<void(const schedule::TimelineEvent&)>& taken,
                          bool all) {
  while (!open_.empty() && open_.front().end) {
    const Open& next = open_.front();
    const int64_t looked_ns = steady_ns();
    if (!all && !next.end->is_done()) {
      not_done_ns_ = looked_ns;
      return;
    }
    next.end->wait_on_host();
    // Step by step: a device says a long time with fewer digits.
    int64_t start_ns = last_ns_ + next.begin->ns_since(*last_);
    int64_t end_ns = start_ns + next.end->ns_since(*next.begin);
    // In a run of hours the two clocks drift apart: it was done by now, and not yet when it was
    // looked at before.
    const int64_t drift_ns = end_ns - std::max(std::min(end_ns, steady_ns()), not_done_ns_);
    start_ns = std::max(start_ns - drift_ns, last_ns_);
    end_ns -= drift_ns;
    taken({next.action, start_ns, end_ns, next.waits ? end_ns - start_ns : 0});
    last_ = next.end;
    last_ns_ = end_ns;
    not_done_ns_ = 0;
    open_.pop_front();
  }
}

}  // namespace penstock::runtime
