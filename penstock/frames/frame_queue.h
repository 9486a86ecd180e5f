// A few frames that wait between a source and whoever learns from them. A thread of the queue reads
// the source. When the queue is full, the OLDEST waiting frame is dropped and counted: the frames
// that are taken are always recent, and their latency is bounded, however slow the taker is.
//
//   FrameQueue queue(open_source("camera:0", {}), {.capacity = 2});
//   Frame frame;
//   while (queue.take(frame, steady_clock::now() + 1s) == Next::Ready) learn(frame);
//
// take(), counters() and stop() may be called from any thread. Buffers go round: take() exchanges
// the taker's frame for a waiting one, so that after a few frames nothing is allocated.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "penstock/frames/frame_source.h"
#include "penstock/util/process/mutex.h"

namespace penstock::frames {

inline constexpr int kMaxQueueCapacity = 4096;
/// The maximum of memory that a queue may need for its frames.
inline constexpr int64_t kMaxQueueBytes = int64_t{8} << 30;

struct QueueOptions {
  int capacity = 2;  ///< frames that wait at most
  /// True: when the queue is full, the source is not read until there is room, and nothing is
  /// dropped. For files and tests; a live source would lose frames elsewhere.
  bool waits_when_full = false;
};

struct QueueCounters {
  int64_t frames_in = 0;         ///< that came from the source, or were left out by it as late
  int64_t dropped = 0;           ///< that nobody took in time, or that the source left out as late
  int64_t taken = 0;             ///< frames_in = dropped + taken + those that wait now
  int64_t longest_stall_ns = 0;  ///< the longest wait for one frame of the source
  SourceCounts source = {};      ///< announced, broken, left out as late
  std::string half_frame = {};   ///< FrameSource::half_frame(), while the source stalls
  bool has_ended = false;        ///< the source brings no more
  /// Why, when it has: "the source ended", the error, "stopped"; with the source's remarks.
  std::string end_reason = {};
  std::string remarks = {};  ///< of the source, when it has ended
};

class FrameQueue {
 public:
  /// Starts the reader. Throws ConfigError for a capacity outside of 1..kMaxQueueCapacity, and for
  /// one whose frames need more than kMaxQueueBytes.
  explicit FrameQueue(std::unique_ptr<FrameSource> source, QueueOptions options = {});
  /// As stop().
  ~FrameQueue();
  FrameQueue(const FrameQueue&) = delete;
  FrameQueue& operator=(const FrameQueue&) = delete;

  /// The oldest waiting frame; waits for one until `deadline` at most. Ended: the source has ended
  /// and all frames are taken, or stop() was called. Throws the error of the source, after all
  /// frames that came before it, and again at every later call.
  Next take(Frame& frame, Deadline deadline);

  QueueCounters counters() const;

  /// Stops reading, drops what waits and wakes take(). Blocks until the source's next() returns:
  /// the reader asks for kSlice at a time, so 50 ms at most and the time that a source may need to
  /// make one frame. No source blocks beyond its deadline (frame_source.h). May be called again.
  void stop();

  /// What the frames are: constant, so safe beside the reader.
  FrameSize size() const { return size_; }
  double frames_per_second() const { return frames_per_second_; }
  int num_classes() const { return num_classes_; }
  const std::vector<std::string>& class_names() const { return class_names_; }
  const std::string& description() const { return description_; }

 private:
  static constexpr std::chrono::milliseconds kSlice{50};

  /// For any frame of the source, so that later ones allocate nothing.
  void make_room(Frame& buffer) const;
  void run() noexcept;
  /// False: it has ended, or stop() was called.
  bool read_one();
  /// A buffer for the next frame; -1 after stop(). Blocks while the queue is full, if it has to.
  int buffer_for_next();
  void add(int buffer);
  void end(std::string reason, std::exception_ptr error);
  void note_wait(int64_t since_ns);
  /// What the source says of frames that it did not deliver.
  void note(const SourceCounts& counts) REQUIRES(mutex_);

  std::unique_ptr<FrameSource> source_;  ///< only the reader uses it
  const QueueOptions options_;
  const FrameSize size_;
  const double frames_per_second_;
  const int num_classes_;
  const std::vector<std::string> class_names_;
  const std::string description_;

  mutable Mutex mutex_;
  CondVar changed_;
  /// One more than the capacity. A buffer belongs to the reader, or its index is in free_ or in
  /// waiting_; then mutex_ guards it.
  std::vector<Frame> buffers_;
  std::vector<int> free_ GUARDED_BY(mutex_);
  std::vector<int> waiting_ GUARDED_BY(mutex_);  ///< oldest first
  QueueCounters counters_ GUARDED_BY(mutex_);
  std::exception_ptr error_ GUARDED_BY(mutex_);
  bool is_stopped_ GUARDED_BY(mutex_) = false;

  Mutex join_mutex_;
  std::thread reader_ GUARDED_BY(join_mutex_);
};

}  // namespace penstock::frames
