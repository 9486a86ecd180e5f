// The times of one measurement's passes while it goes on: whether they still fall, and how well
// their mean is known.
//
//   PassRecord record;
//   record.add(pass_ns);
//   if (record.times().mean_ns > 0 && record.times().error <= 0.02) stop();
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/profile/profile.h"

namespace penstock::profile {

class PassRecord {
 public:
  void add(int64_t pass_ns) { passes_ns_.push_back(pass_ns); }
  void clear() { passes_ns_.clear(); }
  int64_t count() const { return static_cast<int64_t>(passes_ns_.size()); }

  /// Whether the newest passes are clearly faster than those before them, as while caches and
  /// allocators warm up. False with fewer than six.
  bool still_falls() const;
  /// Single passes beyond three medians count as three, as in the costs of layers.
  /// mean_ns is 0 with fewer than four passes: nothing is known of the mean's error.
  ///
  /// The error is that of the mean of stretches of neighbouring passes: the standard deviation of
  /// their means over the root of their number, widened where neighbouring stretches are alike
  /// (r: their correlation) by sqrt((1 + r) / (1 - r)), as for the mean of an autoregressive
  /// series.
  PassTimes times() const;

 private:
  std::vector<int64_t> passes_ns_;
};

}  // namespace penstock::profile
