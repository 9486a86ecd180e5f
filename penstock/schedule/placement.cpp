#include "penstock/schedule/placement.h"

#include <fmt/format.h>

#include "penstock/schedule/schedule.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

void check_counts(int stages, int workers, int copies) {
  if (stages < 1 || workers < 1 || copies < 1) {
    throw ConfigError(
        fmt::format("stages, workers and copies must be at least 1, found {}, {} and {}", stages,
                    workers, copies));
  }
  if (int64_t{workers} * copies > kMaxWorkers || int64_t{stages} * copies > kMaxWorkers) {
    throw ConfigError(fmt::format("{} copies of {} stages on {} workers are more than {}", copies,
                                  stages, workers, kMaxWorkers));
  }
}

/// The worker_of_replica of `copies` copies of a pipeline of `workers` workers: stage by stage,
/// replica by replica. `place(stage, replica)` is the worker within its copy; `per_copy` replicas
/// belong to each copy.
template <class Place>
std::vector<int> make_placement(int stages, int workers, int copies, int per_copy, Place place) {
  std::vector<int> worker_of_replica;
  worker_of_replica.reserve(static_cast<size_t>(stages) * static_cast<size_t>(copies * per_copy));
  for (int s = 0; s < stages; ++s) {
    for (int replica = 0; replica < copies * per_copy; ++replica) {
      worker_of_replica.push_back(replica / per_copy * workers + place(s, replica % per_copy));
    }
  }
  return worker_of_replica;
}

}  // namespace

std::vector<int> loop_placement(int stages, int workers, int copies) {
  check_counts(stages, workers, copies);
  if (stages % workers != 0)
    throw ConfigError(
        fmt::format("{} stages cannot be divided evenly among {} workers", stages, workers));
  if (stages == workers && copies == 1) return {};
  return make_placement(stages, workers, copies, 1,
                        [&](int stage, int) { return stage % workers; });
}

std::vector<int> v_placement(int stages, int copies) {
  check_counts(stages, stages, copies);
  if (stages % 2 != 0)
    throw ConfigError(fmt::format("a V needs an even number of stages, found {}", stages));
  const int workers = stages / 2;
  return make_placement(stages, workers, copies, 1, [&](int stage, int) {
    return stage < workers ? stage : stages - 1 - stage;
  });
}

std::vector<int> bidirectional_placement(int stages, int copies) {
  check_counts(stages, stages, copies);
  if (stages % 2 != 0) {
    throw ConfigError(
        fmt::format("two pipelines in opposite directions need an even number of stages, found {}: "
                    "a worker would hold the middle stage twice",
                    stages));
  }
  return make_placement(stages, stages, copies, 2, [&](int stage, int direction) {
    return direction == 0 ? stage : stages - 1 - stage;
  });
}

std::vector<int> placed(plan::Placement placement, int stages, int chunks, int copies) {
  switch (placement) {
    case plan::Placement::OneStage:
      break;
    case plan::Placement::Loop:
      return loop_placement(stages, stages / chunks, copies);
    case plan::Placement::V:
      return v_placement(stages, copies);
    case plan::Placement::Bidirectional:
      return bidirectional_placement(stages, copies);
  }
  return {};
}

}  // namespace penstock::schedule
