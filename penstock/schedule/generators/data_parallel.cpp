#include "penstock/schedule/generators/data_parallel.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::DataParallel>(const ScheduleShape& shape) {
  return make_lists(shape, [&](ComputeList& list) {
    const int64_t count = list.count_below(shape.micro_batches);
    for (int64_t local = 0; local < count; ++local) {
      list.forward(local);
      list.backward(local);
    }
  });
}

}  // namespace penstock::schedule
