#include "penstock/schedule/generators/one_f_one_b.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::OneFOneB>(const ScheduleShape& shape) {
  const std::vector<int64_t> depths = warmup_depths(shape);
  return make_lists(shape, [&](ComputeList& list) {
    list.one_forward_one_backward(0, list.count_below(shape.micro_batches),
                                  depths[list.stage().index()]);
  });
}

template <>
WorkerLists generate_compute<Strategy::TwoBuffered>(const ScheduleShape& shape) {
  return generate_compute<Strategy::OneFOneB>(shape);
}

}  // namespace penstock::schedule
