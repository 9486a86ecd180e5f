// The best cover of the layers after a cut state whose first stage begins at a worker. Internal to
// table_search.cpp.
#pragma once

#include <cstdint>
#include <tuple>

namespace penstock::planner {

struct Cell {
  int workers = -1;
  int stages = 0;
  int64_t cut_bytes = 0;
  int end = -1;       ///< state that ends the first stage
  int place_end = 0;  ///< one past its last worker
  int next = 0;       ///< first worker of the next stage
  bool recompute = false;

  bool exists() const { return workers >= 0; }
  auto cost() const { return std::tie(workers, stages, cut_bytes); }
};

}  // namespace penstock::planner
