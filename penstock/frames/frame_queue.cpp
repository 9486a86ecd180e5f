#include "penstock/frames/frame_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"
#include "penstock/util/text/units.h"

namespace penstock::frames {

namespace {

using Clock = std::chrono::steady_clock;

void check_capacity(int capacity, FrameSize size) {
  if (capacity < 1 || capacity > kMaxQueueCapacity) {
    throw ConfigError(
        fmt::format("expected a queue of 1 to {} frames, found {}", kMaxQueueCapacity, capacity));
  }
  const int64_t bytes = (frame_bytes(size) + pixel_count(size)) * (capacity + 1);
  if (bytes > kMaxQueueBytes) {
    throw ConfigError(fmt::format("a queue of {} frames of {} takes {}; expected at most {}",
                                  capacity, to_string(size), format_bytes(bytes),
                                  format_bytes(kMaxQueueBytes)));
  }
}

}  // namespace

FrameQueue::FrameQueue(std::unique_ptr<FrameSource> source, QueueOptions options)
    : source_(std::move(source)),
      options_(options),
      size_(source_->size()),
      frames_per_second_(source_->frames_per_second()),
      num_classes_(source_->num_classes()),
      class_names_(source_->class_names()),
      description_(source_->describe()) {
  check_capacity(options_.capacity, size_);
  const int buffers = options_.capacity + 1;
  buffers_.resize(static_cast<size_t>(buffers));
  free_.reserve(static_cast<size_t>(buffers));
  waiting_.reserve(static_cast<size_t>(buffers));
  for (int i = 0; i < buffers; ++i) free_.push_back(i);
  for (Frame& buffer : buffers_) make_room(buffer);
  reader_ = std::thread([this] { run(); });
}

void FrameQueue::make_room(Frame& buffer) const {
  buffer.pixels.reserve(static_cast<size_t>(frame_bytes(size_)));
  if (num_classes_ > 0) buffer.pixel_labels.reserve(static_cast<size_t>(pixel_count(size_)));
}

FrameQueue::~FrameQueue() { stop(); }

Next FrameQueue::take(Frame& frame, Deadline deadline) {
  MutexLock lock(mutex_);
  changed_.wait_until(mutex_, deadline, [this]() NO_THREAD_SAFETY_ANALYSIS {
    return !waiting_.empty() || counters_.has_ended;
  });
  if (!waiting_.empty()) {
    const int buffer = waiting_.front();
    waiting_.erase(waiting_.begin());
    std::swap(frame, buffers_[static_cast<size_t>(buffer)]);
    // The taker's first frame is a new buffer: later it may come to a frame with labels.
    make_room(buffers_[static_cast<size_t>(buffer)]);
    free_.push_back(buffer);
    ++counters_.taken;
    if (options_.waits_when_full) changed_.notify_all();
    return Next::Ready;
  }
  if (!counters_.has_ended) return Next::Stalled;
  if (error_) std::rethrow_exception(error_);
  return Next::Ended;
}

QueueCounters FrameQueue::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

void FrameQueue::stop() {
  {
    MutexLock lock(mutex_);
    is_stopped_ = true;
    counters_.dropped += static_cast<int64_t>(waiting_.size());
    free_.insert(free_.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
    changed_.notify_all();
  }
  MutexLock lock(join_mutex_);
  if (reader_.joinable()) reader_.join();
}

void FrameQueue::run() noexcept {
  try {
    while (read_one()) {
    }
  } catch (const std::exception& error) {
    end(error.what(), std::current_exception());
  }
}

bool FrameQueue::read_one() {
  const int buffer = buffer_for_next();
  Frame* const frame = buffer < 0 ? nullptr : &buffers_[static_cast<size_t>(buffer)];
  const int64_t since_ns = steady_ns();
  while (frame != nullptr) {
    {
      MutexLock lock(mutex_);
      if (is_stopped_) break;
    }
    const Next found = source_->next(*frame, Clock::now() + kSlice);
    note_wait(since_ns);
    if (found == Next::Ready) {
      add(buffer);
      return true;
    }
    if (found == Next::Ended) {
      end("the source ended", nullptr);
      return false;
    }
    const SourceCounts counts = source_->counts();
    std::string half_frame = source_->half_frame();
    MutexLock lock(mutex_);
    note(counts);
    counters_.half_frame = std::move(half_frame);
  }
  end("stopped", nullptr);
  return false;
}

int FrameQueue::buffer_for_next() {
  MutexLock lock(mutex_);
  const auto is_room = [this]() NO_THREAD_SAFETY_ANALYSIS {
    return is_stopped_ || waiting_.size() < static_cast<size_t>(options_.capacity);
  };
  // A wait has a deadline; this one is for the taker, who may come as late as it likes.
  while (options_.waits_when_full && !is_room()) {
    changed_.wait_until(mutex_, Clock::now() + std::chrono::hours(1), is_room);
  }
  if (is_stopped_) return -1;
  const int buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void FrameQueue::note(const SourceCounts& counts) {
  const int64_t late = counts.skipped - counters_.source.skipped;
  counters_.frames_in += late;
  counters_.dropped += late;
  counters_.source = counts;
}

void FrameQueue::add(int buffer) {
  const SourceCounts counts = source_->counts();
  MutexLock lock(mutex_);
  note(counts);
  counters_.half_frame.clear();
  ++counters_.frames_in;
  if (is_stopped_) {
    ++counters_.dropped;
    return;
  }
  if (waiting_.size() == static_cast<size_t>(options_.capacity)) {
    free_.push_back(waiting_.front());
    waiting_.erase(waiting_.begin());
    ++counters_.dropped;
  }
  waiting_.push_back(buffer);
  changed_.notify_all();
}

void FrameQueue::note_wait(int64_t since_ns) {
  MutexLock lock(mutex_);
  counters_.longest_stall_ns = std::max(counters_.longest_stall_ns, steady_ns() - since_ns);
}

void FrameQueue::end(std::string reason, std::exception_ptr error) {
  std::string remarks = source_->remarks();
  if (!remarks.empty()) reason += "; " + remarks;
  const SourceCounts counts = source_->counts();
  MutexLock lock(mutex_);
  note(counts);
  counters_.remarks = std::move(remarks);
  counters_.has_ended = true;
  counters_.end_reason = std::move(reason);
  error_ = std::move(error);
  changed_.notify_all();
}

}  // namespace penstock::frames
