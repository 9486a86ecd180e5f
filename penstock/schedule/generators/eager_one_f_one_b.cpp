#include "penstock/schedule/generators/eager_one_f_one_b.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::EagerOneFOneB>(const ScheduleShape& shape) {
  const std::vector<int64_t> depths = warmup_depths(shape);
  return make_lists(shape, [&](ComputeList& list) {
    const int64_t depth = depths[list.stage().index()];
    for_each_mini_batch(shape, list, [&](int64_t begin, int64_t end) {
      list.one_forward_one_backward(begin, end, depth);
    });
  });
}

}  // namespace penstock::schedule
