#include "penstock/schedule/generators/online.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::Online>(const ScheduleShape& shape) {
  const std::vector<int64_t> depths = warmup_depths(shape);
  return make_lists(shape, [&](ComputeList& list) {
    list.one_forward_one_backward(0, list.count_below(shape.micro_batches),
                                  depths[list.stage().index()]);
  });
}

}  // namespace penstock::schedule
