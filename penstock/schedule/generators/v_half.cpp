#include "penstock/schedule/generators/v_half.h"

#include "penstock/schedule/generators/v_block.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::VHalf>(const ScheduleShape& shape) {
  const int64_t workers = shape.num_stages() / 2;
  const bool odd = workers % 2 != 0;
  return repeat_block(shape, {.down = 2,
                              .up = 1,
                              .bottom_rest = odd ? 0 : 3,
                              .top_rest = 0,
                              .last_rest = odd ? 1 : 4,
                              .most_kept = 2 * (workers / 2 + 1)});
}

}  // namespace penstock::schedule
