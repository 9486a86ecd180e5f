// A running stream as the live page shows it (penstock/live/live_source.h).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "penstock/live/live_source.h"
#include "penstock/stream/online_loop.h"
#include "penstock/stream/recent_numbers.h"
#include "penstock/util/process/mutex.h"

namespace penstock::tool {

/// What does not change.
struct StreamLiveTexts {
  std::string title = {};
  std::string source = {};
  frames::Task task = frames::Task::Reconstruct;
  int classes = 0;        ///< of the labels
  double wanted_fps = 0;  ///< 0: none
};

/// Thread-safe.
class StreamLive final : public live::LiveSource {
 public:
  /// `loop` must outlive it.
  StreamLive(const stream::OnlineLoop& loop, StreamLiveTexts texts);

  void add(const stream::StreamLook& look);
  void end(const std::string& reason);

  std::string state() const override;
  live::Picture input() const override;
  live::Picture output() const override;

 private:
  struct Point {
    int64_t time_ns = 0;
    stream::StreamNumbers numbers;
    int64_t dropped = 0;
  };

  const stream::OnlineLoop& loop_;
  const StreamLiveTexts texts_;
  const int64_t begin_ns_;
  mutable Mutex mutex_;
  stream::StreamLook look_ GUARDED_BY(mutex_);
  stream::RecentNumbers recent_ GUARDED_BY(mutex_){std::chrono::seconds(1)};
  std::deque<Point> history_ GUARDED_BY(mutex_);
  int64_t between_points_ns_ GUARDED_BY(mutex_) = 0;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::string message_ GUARDED_BY(mutex_);
};

}  // namespace penstock::tool
