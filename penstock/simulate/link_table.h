// The pairs of stages that exchange messages, numbered; internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/simulate/values.h"

namespace penstock::simulate::detail {

class LinkTable {
 public:
  /// `links`: ascending, without duplicates.
  LinkTable(const std::vector<schedule::StageLink>& links, const Costs& costs, int num_stages);

  size_t size() const { return targets_.size(); }
  /// The link's number; it must be one of the table. O(log targets of the stage).
  size_t find(const schedule::StageLink& link) const {
    const auto begin = targets_.begin() + first_[link.from.index()];
    if (*begin == link.to) return static_cast<size_t>(first_[link.from.index()]);
    const auto end = targets_.begin() + first_[link.from.index() + 1];
    return static_cast<size_t>(std::lower_bound(begin, end, link.to) - targets_.begin());
  }
  schedule::StageLink at(size_t link) const { return links_[link]; }
  /// Of one message, by lane: those of link l are 2l forwards and 2l + 1 back.
  const std::vector<int64_t>& lane_bytes() const { return lane_bytes_; }
  /// What coding takes from the worker at each end of a message.
  int64_t coding_ns(int32_t lane) const { return lane_coding_ns_[static_cast<size_t>(lane)]; }

 private:
  std::vector<int64_t> first_;  ///< per stage, its first link
  std::vector<StageId> targets_;
  std::vector<schedule::StageLink> links_;
  std::vector<int64_t> lane_bytes_;
  std::vector<int64_t> lane_coding_ns_;
};

}  // namespace penstock::simulate::detail
