// What the last searches for orders did, so that the next one goes on where it first differs.
//
//   Trail trail = trails.find(asked, may_keep);  // the stops that it would come by
//   trails.add(asked, trail);                    // with those that it has added
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "penstock/schedule/orders/kept_range.h"
#include "penstock/schedule/orders/order_clock.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::schedule {

/// Where a search stands: all that its next limit depends on, besides the problem.
struct Standing {
  std::shared_ptr<const Order> order = std::make_shared<const Order>();
  OrderTime time = {};
  Rng rng{1};
  int64_t spent = 0;
  std::vector<bool> offered = {};  ///< per known order
};

/// A search at the end of one limit.
struct Stop {
  KeptRange may_keep;  ///< at this limit
  Standing standing = {};
};
/// Limit by limit.
using Trail = std::vector<std::shared_ptr<const Stop>>;

/// The trails of the last searches. The planner asks for the same problem with many numbers to
/// keep, and as long as these do not matter, it asks for the same search each time. Thread-safe.
class Trails {
 public:
  struct Asked {
    OrderProblem problem = {};  ///< without most_kept
    std::vector<Order> known = {};
    int64_t effort = 0;
    bool operator==(const Asked&) const = default;
  };

  /// The first stops of an earlier search that `may_keep` (per limit) has in common with it, as
  /// many as possible.
  Trail find(const Asked& asked, const std::vector<std::vector<int64_t>>& may_keep) {
    const std::lock_guard lock(mutex_);
    Trail best;
    for (const auto& [known, trail] : trails_) {
      if (*known != asked) continue;
      size_t same = 0;
      while (same < std::min(trail.size(), may_keep.size()) &&
             trail[same]->may_keep.has(may_keep[same]))
        ++same;
      if (same > best.size()) best.assign(trail.begin(), trail.begin() + offset(same));
    }
    return best;
  }

  void add(Asked asked, Trail trail) {
    const std::lock_guard lock(mutex_);
    auto shared = std::make_shared<const Asked>(std::move(asked));
    for (const auto& [known, other] : trails_) {
      if (*known == *shared) shared = known;
    }
    trails_.emplace_back(std::move(shared), std::move(trail));
    if (trails_.size() > kRemembered) trails_.pop_front();
  }

 private:
  static constexpr size_t kRemembered = 4;
  static std::ptrdiff_t offset(size_t count) { return static_cast<std::ptrdiff_t>(count); }

  std::mutex mutex_;
  std::deque<std::pair<std::shared_ptr<const Asked>, Trail>> trails_;
};

}  // namespace penstock::schedule
