#include "penstock/simulate/link_table.h"

#include "penstock/util/arithmetic.h"

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
  bytes_.resize(links.size());
  for (const LinkCost& cost : costs.links) {
    const auto place =
        std::lower_bound(links.begin(), links.end(), schedule::StageLink{cost.from, cost.to});
    if (place == links.end() || *place != schedule::StageLink{cost.from, cost.to}) continue;
    int64_t& bytes = bytes_[static_cast<size_t>(place - links.begin())];
    bytes = saturating_add(bytes, cost.bytes);
  }
}

}  // namespace penstock::simulate::detail
