// The times of the stages in a stream's last looks, without outliers: one pass that took long, as
// when the process was suspended, says nothing of the passes to come.
//
//   RecentStages recent;
//   recent.add(meter.take_stages());   // at every look
//   recent.medians()[0].forward_ns;
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "penstock/stream/stream_meter.h"

namespace penstock::stream {

class RecentStages {
 public:
  /// Looks in which a stage saw no frame do not count for it. Another number of stages begins anew.
  void add(const std::vector<StageTimes>& look);
  void clear() { stages_.clear(); }

  /// Each time is the median over the stage's last looks: nine, or more where these saw fewer than
  /// twenty frames. `frames` are those of these looks.
  std::vector<StageTimes> medians() const;
  /// Of the stage that has fewest.
  int64_t looks() const;

 private:
  std::vector<std::deque<StageTimes>> stages_;
};

}  // namespace penstock::stream
