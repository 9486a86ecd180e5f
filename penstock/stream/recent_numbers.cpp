#include "penstock/stream/recent_numbers.h"

namespace penstock::stream {

StreamNumbers RecentNumbers::add(const StreamNumbers& whole) {
  marks_.push_back(whole);
  while (marks_.size() > 2 && whole.elapsed_ns - marks_[1].elapsed_ns >= window_.count())
    marks_.pop_front();
  const StreamNumbers& before = marks_.front();
  StreamNumbers recent = whole;
  recent.elapsed_ns -= before.elapsed_ns;
  recent.processed -= before.processed;
  recent.deadline_misses -= before.deadline_misses;
  recent.losses -= before.losses;
  recent.fps = recent.elapsed_ns > 0 ? static_cast<double>(recent.processed) * 1e9 /
                                           static_cast<double>(recent.elapsed_ns)
                                     : 0;
  return recent;
}

}  // namespace penstock::stream
