#include "penstock/schedule/generators/gpipe.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::GPipe>(const ScheduleShape& shape) {
  return make_lists(shape, [&](ComputeList& list) {
    for_each_mini_batch(shape, list, [&](int64_t begin, int64_t end) {
      for (int64_t local = begin; local < end; ++local) list.forward(local);
      for (int64_t local = begin; local < end; ++local) list.backward(local);
    });
  });
}

}  // namespace penstock::schedule
