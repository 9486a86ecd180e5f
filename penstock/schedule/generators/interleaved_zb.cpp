#include "penstock/schedule/generators/interleaved_zb.h"

#include "penstock/schedule/generators/interleaved.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::InterleavedZb>(const ScheduleShape& shape) {
  return interleaved_lists(shape, true);
}

}  // namespace penstock::schedule
