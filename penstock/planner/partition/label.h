// A cover of the layers after a cut state, from the output end. Internal to label_search.cpp.
#pragma once

#include <cstdint>
#include <tuple>

namespace penstock::planner {

struct Label {
  int free = 0;  ///< workers before the first stage of the cover: its replicas begin here
  int workers = 0;
  int stages = 0;
  int end = -1;       ///< state that ends the first stage
  int next = -1;      ///< label of that state
  int place_end = 0;  ///< the first stage's replicas are [free, place_end)
  bool recompute = false;
  int64_t cut_bytes = 0;

  auto cost() const { return std::tie(workers, stages, cut_bytes); }
};

}  // namespace penstock::planner
