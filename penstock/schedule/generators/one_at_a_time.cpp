#include "penstock/schedule/generators/one_at_a_time.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {

namespace {

WorkerLists one_at_a_time(const ScheduleShape& shape) {
  return make_lists(shape, [&](ComputeList& list) {
    const int64_t count = list.count_below(shape.micro_batches);
    for (int64_t local = 0; local < count; ++local) {
      list.forward(local);
      list.backward(local);
    }
  });
}

}  // namespace

template <>
WorkerLists generate_compute<Strategy::Serial>(const ScheduleShape& shape) {
  return one_at_a_time(shape);
}

template <>
WorkerLists generate_compute<Strategy::DataParallel>(const ScheduleShape& shape) {
  return one_at_a_time(shape);
}

template <>
WorkerLists generate_compute<Strategy::ModelParallel>(const ScheduleShape& shape) {
  return one_at_a_time(shape);
}

}  // namespace penstock::schedule
