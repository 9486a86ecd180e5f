#include "penstock/schedule/generators/chimera.h"

#include <array>

#include "penstock/schedule/generators/compute_lists.h"

namespace penstock::schedule {
namespace {

/// The two lists of a worker: for its stage of the pipeline that runs down the workers, and for its
/// stage of the pipeline that runs up.
using Lists = std::array<ComputeList, 2>;

/// The micro-batches [begin, end) of one direction in a mini-batch, counted locally.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

/// Orders one mini-batch by running it in time slots, each forward and backward one slot long.
/// Every worker takes what is ready: a backward before a forward, then the oldest micro-batch, then
/// the one that leaves the pipeline first. Forwards wait while a worker keeps as many micro-batches
/// as there are stages. O(actions): only workers with something to do are looked at.
class SlotOrder {
 public:
  SlotOrder(std::vector<Lists>& lists, std::array<Range, 2> ranges, size_t first_direction)
      : lists_(lists),
        num_workers_(lists.size()),
        ranges_(ranges),
        first_direction_(first_direction),
        most_kept_(static_cast<int64_t>(num_workers_)),
        workers_(num_workers_) {}

  void run() {
    workers_.front().halves[0].forwards_ready = ranges_[0].count();
    workers_.back().halves[1].forwards_ready = ranges_[1].count();
    int64_t left =
        2 * static_cast<int64_t>(num_workers_) * (ranges_[0].count() + ranges_[1].count());
    std::vector<Pick> picks;
    wake(0);
    wake(num_workers_ - 1);
    while (left > 0) {
      if (awake_.empty()) let_more_in();
      picks.clear();
      for (const size_t worker : awake_) {
        workers_[worker].awake = false;
        // The worker's own forward of the slot before may have filled it.
        if (can_act(workers_[worker])) picks.push_back(choose(worker));
      }
      awake_.clear();
      for (const Pick& pick : picks) apply(pick);
      left -= static_cast<int64_t>(picks.size());
    }
  }

 private:
  struct Half {
    int64_t forwards = 0;  ///< done
    int64_t backwards = 0;
    int64_t forwards_ready = 0;  ///< micro-batches whose forward has what it needs, done or not
    int64_t backwards_ready = 0;
  };
  struct Worker {
    std::array<Half, 2> halves;
    int64_t kept = 0;
    bool awake = false;
  };
  struct Pick {
    size_t worker;
    size_t direction;
    Op op;
  };

  bool has_backward(const Half& half) const { return half.backwards < half.backwards_ready; }
  bool has_forward(const Half& half) const { return half.forwards < half.forwards_ready; }
  bool can_act(const Worker& worker) const {
    if (has_backward(worker.halves[0]) || has_backward(worker.halves[1])) return true;
    return worker.kept < most_kept_ &&
           (has_forward(worker.halves[0]) || has_forward(worker.halves[1]));
  }
  void wake(size_t worker) {
    if (workers_[worker].awake || !can_act(workers_[worker])) return;
    workers_[worker].awake = true;
    awake_.push_back(worker);
  }
  size_t stage(size_t worker, size_t direction) const {
    return direction == 0 ? worker : num_workers_ - 1 - worker;
  }

  Pick choose(size_t w) const {
    const Worker& worker = workers_[w];
    const bool backward = has_backward(worker.halves[0]) || has_backward(worker.halves[1]);
    const auto ready = [&](size_t d) {
      return backward ? has_backward(worker.halves[d]) : has_forward(worker.halves[d]);
    };
    const auto age = [&](size_t d) {
      return backward ? worker.halves[d].backwards : worker.halves[d].forwards;
    };
    size_t best = first_direction_;
    const size_t other = 1 - first_direction_;
    if (ready(other)) {
      const bool closer =
          backward ? stage(w, other) < stage(w, best) : stage(w, other) > stage(w, best);
      if (!ready(best) || age(other) < age(best) || (age(other) == age(best) && closer))
        best = other;
    }
    return {w, best, backward ? Op::Backward : Op::Forward};
  }

  void apply(const Pick& pick) {
    Worker& worker = workers_[pick.worker];
    Half& half = worker.halves[pick.direction];
    const bool forward = pick.op == Op::Forward;
    lists_[pick.worker][pick.direction].add(
        pick.op, ranges_[pick.direction].begin + (forward ? half.forwards++ : half.backwards++));
    worker.kept += forward ? 1 : -1;
    const size_t s = stage(pick.worker, pick.direction);
    const bool towards_higher = forward == (pick.direction == 0);
    if (forward && s + 1 == num_workers_) {
      ++half.backwards_ready;
    } else if (forward || s > 0) {
      const size_t next = towards_higher ? pick.worker + 1 : pick.worker - 1;
      Half& theirs = workers_[next].halves[pick.direction];
      ++(forward ? theirs.forwards_ready : theirs.backwards_ready);
      wake(next);
    }
    wake(pick.worker);
  }

  /// Every worker that could act already keeps its maximum of forwards.
  void let_more_in() {
    ++most_kept_;
    for (size_t worker = 0; worker < num_workers_; ++worker) wake(worker);
  }

  std::vector<Lists>& lists_;
  size_t num_workers_;
  std::array<Range, 2> ranges_;
  size_t first_direction_;
  int64_t most_kept_;
  std::vector<Worker> workers_;
  std::vector<size_t> awake_;
};

/// One pair of pipelines over its workers, mini-batch by mini-batch. Replicas 2k and 2k + 1 of
/// every stage form pair k.
void fill_pair(const ScheduleShape& shape, std::vector<Lists>& lists) {
  const auto count = [&](size_t d, int64_t end) { return lists.front()[d].count_below(end); };
  const auto next = [&](size_t d, int64_t local) {
    return lists.front()[d].micro_batch(local).value;
  };
  std::array<int64_t, 2> begin{0, 0};
  while (begin[0] < count(0, shape.micro_batches) || begin[1] < count(1, shape.micro_batches)) {
    const int64_t first = std::min(next(0, begin[0]), next(1, begin[1]));
    const int64_t next_mini_batch = shape.mini_batch_of(MicroBatchId{first}).value + 1;
    const int64_t end =
        std::min(saturating_mul(next_mini_batch, shape.accumulate), shape.micro_batches);
    const std::array<Range, 2> ranges{Range{begin[0], count(0, end)},
                                      Range{begin[1], count(1, end)}};
    SlotOrder(lists, ranges, first == next(0, begin[0]) ? 0 : 1).run();
    begin = {ranges[0].end, ranges[1].end};
  }
}

}  // namespace

template <>
WorkerLists generate_compute<Strategy::Chimera>(const ScheduleShape& shape) {
  const WorkerTable table(shape);
  WorkerLists workers(static_cast<size_t>(table.num_workers()));
  const int num_stages = shape.num_stages();
  for (int replica = 0; replica < shape.replicas.front(); replica += 2) {
    std::vector<Lists> lists;
    lists.reserve(static_cast<size_t>(num_stages));
    for (int s = 0; s < num_stages; ++s) {
      auto& actions = workers[table.worker_of_replica(StageId{s}, replica).index()];
      const StageId opposite{num_stages - 1 - s};
      lists.push_back({ComputeList(shape, StageId{s}, replica, actions),
                       ComputeList(shape, opposite, replica + 1, actions)});
      actions.reserve(static_cast<size_t>(2 * (lists.back()[0].count_below(shape.micro_batches) +
                                               lists.back()[1].count_below(shape.micro_batches))));
    }
    fill_pair(shape, lists);
  }
  return workers;
}

}  // namespace penstock::schedule
