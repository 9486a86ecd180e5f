#include "penstock/stream/frame_feed.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "penstock/stream/frame_tensors.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::stream {

namespace {
constexpr std::chrono::milliseconds kSlice{50};
}

FrameFeed::FrameFeed(frames::FrameQueue& queue, const FeedOptions& options)
    : queue_(queue), options_(options), classes_(queue.num_classes()), last_came_ns_(steady_ns()) {
  PENSTOCK_CHECK(options.frames_under_way >= 1, options.frames_under_way);
  if (needs_labels(options.task) && classes_ == 0) {
    throw ConfigError(fmt::format("task {} learns from labels, and the frames of {} have none",
                                  to_string(options.task), queue.description()));
  }
  slots_.resize(static_cast<size_t>(options.frames_under_way) + 2);
  newest_.number = -1;
}

FrameFeed::Next FrameFeed::end(std::string reason, bool is_error) {
  MutexLock lock(mutex_);
  if (!end_) end_ = FeedEnd{std::move(reason), is_error};
  return Next::Ended;
}

FrameFeed::Next FrameFeed::next(MicroBatchId micro_batch) {
  if (ended()) return Next::Ended;
  if (options_.max_frames > 0 && given() >= options_.max_frames)
    return end(fmt::format("{} frames were asked for", options_.max_frames), false);
  frames::Next taken = frames::Next::Ended;
  try {
    for (;;) {
      taken = queue_.take(frame_, std::chrono::steady_clock::now() + kSlice);
      if (taken != frames::Next::Ready) break;
      last_came_ns_ = steady_ns();
      if (options_.task != frames::Task::Predict || previous_.defined()) break;
      to_tensor(frame_, previous_);  // the first one has none before it
    }
  } catch (const Error& error) {
    return end(error.what(), true);
  }
  if (taken == frames::Next::Ended) return end(queue_.counters().end_reason, false);
  if (taken == frames::Next::Stalled) {
    const double stalled_s = static_cast<double>(steady_ns() - last_came_ns_) / 1e9;
    if (stalled_s * 1e3 < static_cast<double>(options_.longest_stall.count())) return Next::NotYet;
    const std::string half = queue_.counters().half_frame;
    return end(
        fmt::format("no frame came for {:.3g} s{}{}", stalled_s, half.empty() ? "" : ": ", half),
        true);
  }
  fill(micro_batch);
  MutexLock lock(mutex_);
  ++given_;
  if (is_watched_) newest_ = frame_;
  return Next::Ready;
}

void FrameFeed::fill(MicroBatchId micro_batch) {
  Slot& slot = slots_[micro_batch.index() % slots_.size()];
  slot.input.reset();
  slot.target.reset();
  to_tensor(frame_, slot.frame);
  slot.captured_ns = frame_.captured_ns;
  slot.number = frame_.number;
  slot.input = slot.frame;
  switch (options_.task) {
    case frames::Task::Reconstruct:
      slot.target = slot.frame;
      return;
    case frames::Task::Predict:
      slot.input = std::exchange(previous_, slot.frame);
      slot.target = slot.frame;
      return;
    case frames::Task::Pixels:
      slot.target = to_targets(frame_, classes_, slot.labels) ? slot.labels : slot.frame;
      return;
    case frames::Task::Label:
      if (!frame_.label) return;
      if (*frame_.label < 0 || *frame_.label >= classes_) {
        throw RuntimeError(fmt::format("frame {} is of class {}, but there are {} classes",
                                       frame_.number, *frame_.label, classes_));
      }
      slot.target = at::full({1}, *frame_.label, at::kLong);
      return;
  }
}

model::Tensors FrameFeed::inputs(MicroBatchId micro_batch) const {
  return {slot(micro_batch).input};
}

at::Tensor FrameFeed::targets(MicroBatchId micro_batch) const { return slot(micro_batch).target; }

uint64_t FrameFeed::seed(MicroBatchId micro_batch) const {
  return derive_seed(options_.seed, static_cast<uint64_t>(slot(micro_batch).number));
}

void FrameFeed::restart(int64_t frames_under_way) {
  slots_.clear();
  slots_.resize(static_cast<size_t>(frames_under_way) + 2);
  MutexLock lock(mutex_);
  given_before_ = given_;
}

int64_t FrameFeed::given() const {
  MutexLock lock(mutex_);
  return given_;
}

int64_t FrameFeed::given_in_run() const {
  MutexLock lock(mutex_);
  return given_ - given_before_;
}

std::optional<FeedEnd> FrameFeed::ended() const {
  MutexLock lock(mutex_);
  return end_;
}

frames::Frame FrameFeed::newest() const {
  MutexLock lock(mutex_);
  is_watched_ = true;
  return newest_;
}

}  // namespace penstock::stream
