#include "penstock/planner/partition/paper_table.h"

#include <algorithm>
#include <vector>

#include "penstock/planner/partition/partition_search.h"

namespace penstock::planner {

namespace {

struct PaperCell {
  double ns = kNoTimeLimit;
  int cut = 0;  ///< state that the last stage begins at
  int replicas = 0;
};

bool applies(const PartitionProblem& problem) {
  const double states = problem.states.size();
  const double workers = problem.workers;
  const bool limited = problem.memory.limit_bytes > 0 || problem.cluster.device.memory_bytes > 0;
  return problem.cluster.uniform() && problem.model.topology().num_levels() == 1 && !limited &&
         !problem.straight && problem.recompute != Choice::Always &&
         states * states / 2 * workers * workers / 2 <= kMostTableSteps;
}

class PaperTable {
 public:
  explicit PaperTable(const PartitionProblem& problem)
      : problem_(problem),
        workers_(problem.workers),
        cells_(static_cast<size_t>(problem.states.size()) * static_cast<size_t>(workers_ + 1)) {}

  std::optional<Partition> find() {
    for (int state = 1; state < problem_.states.size(); ++state) cover(state);
    Partition partition;
    int workers = workers_;
    for (int end = problem_.states.full(); end > 0;) {
      const PaperCell& last = cell(end, workers);
      if (last.replicas == 0) return std::nullopt;
      partition.ends.insert(partition.ends.begin(), end);
      partition.places.insert(partition.places.begin(), {workers - last.replicas, last.replicas});
      end = last.cut;
      workers -= last.replicas;
    }
    partition.recompute.assign(partition.ends.size(), false);
    partition.bottleneck_ns = slowest_ns(problem_, partition);
    return partition;
  }

 private:
  PaperCell& cell(int state, int workers) {
    return cells_[static_cast<size_t>(state) * static_cast<size_t>(workers_ + 1) +
                  static_cast<size_t>(workers)];
  }

  void cover(int end) {
    const cluster::Topology& topology = problem_.model.topology();
    const double speed = problem_.cluster.device.speed;
    const auto stage_ns = [&](const SegmentCost& segment, int replicas) {
      return problem_.model.stage_ns(segment, replicas, topology.level_of({0, replicas}),
                                     problem_.memory.micro_batches);
    };
    const bool may_stay_whole = end != problem_.states.full() || !problem_.at_least_two_stages;
    const SegmentCost whole = on_device(problem_.states.segment(0, end), speed);
    for (int m = 1; may_stay_whole && m <= workers_; ++m) cell(end, m) = {stage_ns(whole, m), 0, m};
    for (int begin = end - 1; begin > 0; --begin) {
      if (!problem_.states.nested(begin, end)) continue;
      const SegmentCost segment = on_device(problem_.states.segment(begin, end), speed);
      const double cut_ns =
          problem_.cut_ns(problem_.states.cut_bytes(begin), topology.num_levels());
      for (int replicas = 1; replicas < workers_; ++replicas) {
        const double last_ns = std::max(cut_ns, stage_ns(segment, replicas));
        for (int m = replicas + 1; m <= workers_; ++m) {
          const double ns = std::max(cell(begin, m - replicas).ns, last_ns);
          if (ns < cell(end, m).ns) cell(end, m) = {ns, begin, replicas};
        }
      }
    }
  }

  const PartitionProblem& problem_;
  const int workers_;
  /// Per state and number of workers: the best cover of the layers before the state.
  std::vector<PaperCell> cells_;
};

}  // namespace

std::optional<Partition> paper_partition(const PartitionProblem& problem) {
  if (!applies(problem)) return std::nullopt;
  return PaperTable(problem).find();
}

}  // namespace penstock::planner
