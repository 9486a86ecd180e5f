#include "penstock/schedule/generators/zb_h1.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::ZbH1>(const ScheduleShape& shape) {
  const std::vector<int64_t> depths = warmup_depths(shape);
  return make_lists(
      shape,
      [&](ComputeList& list) {
        const int64_t depth = depths[list.stage().index()];
        const int64_t delay = std::max<int64_t>(depths.front() - depth, 0);
        for_each_mini_batch(shape, list, [&](int64_t begin, int64_t end) {
          list.one_forward_one_split_backward(begin, end, depth, delay);
        });
      },
      3);
}

}  // namespace penstock::schedule
