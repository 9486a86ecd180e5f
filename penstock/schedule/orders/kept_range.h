// The limits, per worker, with which a search would decide everything as it did: it asks whether a
// worker may keep so many micro-batches, and only the answers count.
//
//   KeptRange range(workers);
//   if (range.allows(w, kept, limit)) ...
//   range.has(other_limits)  // the same answers
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace penstock::schedule {

/// Not thread-safe.
class KeptRange {
 public:
  KeptRange() = default;
  explicit KeptRange(size_t workers)
      : least_(workers, 0), most_(workers, std::numeric_limits<int64_t>::max()) {}

  /// Whether the worker may keep `kept`: at most `limit`.
  bool allows(size_t worker, int64_t kept, int64_t limit) {
    if (kept > limit) {
      most_[worker] = std::min(most_[worker], kept - 1);
      return false;
    }
    least_[worker] = std::max(least_[worker], kept);
    return true;
  }
  /// Something else depends on the limit.
  void pin(size_t worker, int64_t limit) { least_[worker] = most_[worker] = limit; }

  bool has(const std::vector<int64_t>& limits) const {
    for (size_t w = 0; w < limits.size(); ++w) {
      if (limits[w] < least_[w] || limits[w] > most_[w]) return false;
    }
    return true;
  }

 private:
  std::vector<int64_t> least_;
  std::vector<int64_t> most_;
};

}  // namespace penstock::schedule
