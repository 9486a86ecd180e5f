#include "penstock/runtime/device/device_timeline.h"

#include "penstock/util/steady_ns.h"

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
    if (!all && !next.end->is_done()) return;
    next.end->wait_on_host();
    // Step by step: a device says a long time with fewer digits.
    const int64_t start_ns = last_ns_ + next.begin->ns_since(*last_);
    const int64_t end_ns = start_ns + next.end->ns_since(*next.begin);
    taken({next.action, start_ns, end_ns, next.waits ? end_ns - start_ns : 0});
    last_ = next.end;
    last_ns_ = end_ns;
    open_.pop_front();
  }
}

}  // namespace penstock::runtime
