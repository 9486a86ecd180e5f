#include "penstock/schedule/generators/zb_h2.h"

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {
namespace {

/// Workers at and after each stage, then a 0 for the end.
std::vector<int64_t> workers_from(const ScheduleShape& shape) {
  std::vector<int64_t> workers(shape.replicas.size() + 1, 0);
  for (size_t s = shape.replicas.size(); s-- > 0;) workers[s] = workers[s + 1] + shape.replicas[s];
  return workers;
}

/// Forwards before the first backward of a stage with `behind` workers after it, when the
/// mini-batch has n micro-batches: between 1F1B's depth and twice that depth minus one, in
/// proportion to the number of micro-batches beyond those that fill the pipeline.
int64_t depth_of(int64_t behind, int64_t replicas, int64_t n, const std::vector<int64_t>& workers) {
  const int64_t spare = std::clamp<int64_t>(n - workers[0], 0, workers[1]);
  const int64_t extra = workers[1] == 0 ? 0 : ceil_div(spare * behind, workers[1]);
  return ceil_div(behind + replicas + extra, replicas);
}

}  // namespace

template <>
WorkerLists generate_compute<Strategy::ZbH2>(const ScheduleShape& shape) {
  const std::vector<int64_t> workers = workers_from(shape);
  return make_lists(
      shape,
      [&](ComputeList& list) {
        const size_t s = list.stage().index();
        for_each_mini_batch(shape, list, [&](int64_t begin, int64_t end) {
          const int64_t first =
              shape.mini_batch_of(list.micro_batch(begin)).value * shape.accumulate;
          const int64_t n = std::min(shape.accumulate, shape.micro_batches - first);
          const int64_t depth = depth_of(workers[s + 1], shape.replicas[s], n, workers);
          const int64_t delay =
              std::max<int64_t>(depth_of(workers[1], shape.replicas[0], n, workers) - depth, 0);
          list.one_forward_one_split_backward(begin, end, depth, delay);
        });
      },
      3);
}

}  // namespace penstock::schedule
