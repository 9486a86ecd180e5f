#include "penstock/schedule/generators/dualpipe.h"

#include <algorithm>
#include <array>

#include "penstock/schedule/generators/compute_lists.h"
#include "penstock/schedule/generators/dualpipe_v.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::DualPipe>(const ScheduleShape& shape) {
  const int64_t half = shape.num_stages() / 2;
  return make_chunked_lists(shape, 3, [&](std::span<ComputeList> chunks) {
    std::array<LocalRange, 2> ranges;
    const auto total = [&](size_t i) { return chunks[i].count_below(shape.micro_batches); };
    while (ranges[0].end < total(0) || ranges[1].end < total(1)) {
      // The next mini-batch of which the worker has any micro-batch.
      const MicroBatchId first =
          std::min(chunks[0].micro_batch(ranges[0].end), chunks[1].micro_batch(ranges[1].end));
      const int64_t next = shape.mini_batch_of(first).value + 1;
      const int64_t end = std::min(saturating_mul(next, shape.accumulate), shape.micro_batches);
      for (size_t i = 0; i < ranges.size(); ++i)
        ranges[i] = {ranges[i].end, chunks[i].count_below(end)};
      fill_dualpipe(chunks, half, ranges, true);
    }
  });
}

}  // namespace penstock::schedule
