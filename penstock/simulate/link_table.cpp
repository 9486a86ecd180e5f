#include "penstock/simulate/link_table.h"

#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate::detail {

LinkTable::LinkTable(const std::vector<schedule::StageLink>& links, const Costs& costs,
                     int num_stages)
    : links_(links) {
  first_.assign(static_cast<size_t>(num_stages) + 1, 0);
  for (const schedule::StageLink& link : links) {
    ++first_[link.from.index() + 1];
    targets_.push_back(link.to);
  }
  for (size_t s = 0; s < static_cast<size_t>(num_stages); ++s) first_[s + 1] += first_[s];
  lane_bytes_.resize(2 * links.size());
  lane_coding_ns_.resize(2 * links.size());
  for (const LinkCost& cost : costs.links) {
    const auto place =
        std::lower_bound(links.begin(), links.end(), schedule::StageLink{cost.from, cost.to});
    if (place == links.end() || *place != schedule::StageLink{cost.from, cost.to}) continue;
    const auto lane = 2 * static_cast<size_t>(place - links.begin());
    lane_bytes_[lane] = saturating_add(lane_bytes_[lane], cost.bytes);
    lane_bytes_[lane + 1] = saturating_add(lane_bytes_[lane + 1], cost.bytes_back());
    lane_coding_ns_[lane] = saturating_add(lane_coding_ns_[lane], cost.coding_ns);
    lane_coding_ns_[lane + 1] = saturating_add(lane_coding_ns_[lane + 1], cost.coding_back_ns);
  }
}

}  // namespace penstock::simulate::detail
