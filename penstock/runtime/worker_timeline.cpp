#include "penstock/runtime/worker_timeline.h"

#include <algorithm>

#include "penstock/util/process/steady_ns.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Op;

namespace {

/// By how many forwards the host may be ahead of a GPU: each has inputs and messages in its memory.
constexpr size_t kMostAhead = 4;
/// Of a stream, whose next frame is not taken before there is time for it.
constexpr size_t kMostAheadOfStream = 1;

}  // namespace

WorkerTimeline::WorkerTimeline(WorkerId worker, const Run& run, const WorkerDevice& device)
    : worker_(worker),
      run_(run),
      device_(device),
      max_events_(static_cast<size_t>(std::max<int64_t>(run.options().max_timeline_events, 0))) {}

void WorkerTimeline::start() {
  if (!device_.is_host()) device_timeline_.emplace(device_.compute());
  if (run_.request.endless == nullptr)
    events_.reserve(std::min(run_.schedule().workers[worker_.index()].size(), max_events_));
}

void WorkerTimeline::begin(const Action& action) {
  waiting_ns_ = 0;
  current_.action = action;
  if (!device_timeline_) {
    current_.start_ns = steady_ns();
    return;
  }
  if (action.op == Op::Forward) keep_pace();
  if (keeps()) device_timeline_->begin(action);
}

void WorkerTimeline::end() {
  if (!device_timeline_) {
    current_.end_ns = steady_ns();
    current_.waiting_ns = waiting_ns_;
    total_waiting_ns_ += waiting_ns_;
    return;
  }
  const Op op = current_.action.op;
  if (keeps()) device_timeline_->end(op == Op::RecvForward || op == Op::RecvBackward);
  if (op == Op::Forward) forwards_.push_back(device_.compute().record());
}

void WorkerTimeline::keep_done() {
  if (device_timeline_)
    device_timeline_->take([this](const auto& event) { keep(event); }, /*all=*/false);
  else if (keeps())
    keep(current_);
}

void WorkerTimeline::finish() {
  total_waiting_ns_ += waiting_ns_;
  if (device_timeline_)
    device_timeline_->take([this](const auto& event) { keep(event); }, /*all=*/true);
}

void WorkerTimeline::keep_pace() {
  const size_t most = run_.request.endless != nullptr ? kMostAheadOfStream : kMostAhead;
  if (forwards_.size() >= most) {
    if (forwards_.front()) forwards_.front()->wait_on_host();
    forwards_.pop_front();
  }
}

bool WorkerTimeline::keeps() const {
  return events_.size() < max_events_ || run_.options().on_action;
}

void WorkerTimeline::keep(const schedule::TimelineEvent& event) {
  if (device_timeline_) total_waiting_ns_ += event.waiting_ns;
  if (events_.size() < max_events_) events_.push_back(event);
  if (run_.options().on_action) run_.options().on_action(worker_, event);
}

}  // namespace penstock::runtime
