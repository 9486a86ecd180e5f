#include "penstock/schedule/generators/one_f_one_b.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {

Schedule one_f_one_b(std::string_view kind, const ScheduleShape& shape) {
  const std::vector<int64_t> depths = warmup_depths(shape);
  return make_compute_schedule(kind, shape, [&](ComputeList& list) {
    list.one_forward_one_backward(0, list.count_below(shape.micro_batches),
                                  depths[list.stage().index()]);
  });
}

}  // namespace penstock::schedule
