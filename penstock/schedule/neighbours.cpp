#include "penstock/schedule/neighbours.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/error.h"

namespace penstock::schedule {

Neighbours neighbours_of(std::vector<StageLink> links, int num_stages) {
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  Neighbours result;
  result.sources.resize(static_cast<size_t>(num_stages));
  result.targets.resize(static_cast<size_t>(num_stages));
  for (const StageLink& link : links) {
    if (link.from.value < 0 || link.to.value >= num_stages || link.from >= link.to) {
      throw ConfigError(fmt::format("link {}->{} must lead from a stage to a later one of {}",
                                    link.from.value, link.to.value, num_stages));
    }
    result.sources[link.to.index()].push_back(link.from);
    result.targets[link.from.index()].push_back(link.to);
  }
  return result;
}

}  // namespace penstock::schedule
