#include "penstock/train/data/some_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

void require_some_target(const Dataset& data) {
  constexpr int64_t kBlock = 4096;
  const bool has_targets = data.sample().targets.needed || data.sample().count_targets;
  if (!has_targets || data.size() == 0) return;
  for (int64_t begin = 0; begin < data.size(); begin += kBlock) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(kBlock, data.size() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    if (data.count_targets(indices) > 0) return;
  }
  throw ConfigError(
      fmt::format("nothing can be learned from '{}': each of its targets is the number that marks "
                  "targets to be ignored (ignore_index, usually -100)",
                  printable(data.name())));
}

}  // namespace penstock::train
