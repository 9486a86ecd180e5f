#include "penstock/schedule/generators/v_min.h"

#include "penstock/schedule/generators/v_block.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::VMin>(const ScheduleShape& shape) {
  const int64_t workers = shape.num_stages() / 2;
  const int64_t rest = workers % 3 == 0 ? 2 : 0;
  return repeat_block(shape, {.down = 1,
                              .up = 1,
                              .bottom_rest = rest,
                              .top_rest = 0,
                              .last_rest = rest,
                              .most_kept = 2 * ((workers + 4) / 3)});
}

}  // namespace penstock::schedule
