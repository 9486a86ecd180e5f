#include "penstock/planner/partition/dp_partitioner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/planner/partition/make_search.h"
#include "penstock/planner/partition/paper_table.h"
#include "penstock/planner/partition/partition_search.h"
#include "penstock/util/error.h"

namespace penstock::planner {

namespace {

PartitionProblem normalised(const PartitionProblem& problem) {
  const int most = problem.model.topology().num_workers();
  if (problem.workers < 1 || problem.workers > most || problem.cluster.num_workers() != most) {
    throw ConfigError(fmt::format("expected 1 to {} workers, as many as the cluster has, found {}",
                                  most, problem.workers));
  }
  PartitionProblem result = problem;
  if (problem.workers == 1 || problem.states.num_layers() == 1) result.at_least_two_stages = false;
  result.memory.max_workers = problem.workers;
  return result;
}

constexpr double kNear = 0.5;

// The least time of a partition: every success of the search lowers `high` to a time that some
// partition really takes, every failure raises `low`.
class Bottleneck {
 public:
  Bottleneck(const PartitionProblem& problem, PartitionSearch& search)
      : problem_(problem), search_(search) {}

  /// Whether there is a partition at all.
  bool find() {
    const bool as_expected = problem_.expected_ns > 0 && improve(problem_.expected_ns);
    if (!as_expected && !improve(kNoTimeLimit)) return false;
    low_ = std::max({low_, fair_share_ns(), problem_.at_least_ns * (1 - 1e-9)});
    approach();
    // What a success takes is often the optimum, since stages can take only so many times: near it,
    // ask for anything faster first. Halving goes on in between, so that many close times do no
    // harm.
    bool ask = true;
    int failures = 0;
    while (high_ > 0) {
      const double middle = low_ + (high_ - low_) / 2;
      const bool can_halve = middle < high_ && middle > low_;
      if (!can_halve || (ask && high_ - low_ < kNear * high_)) {
        if (!improve(std::nextafter(high_, 0.0))) break;
        ask = false;
        failures = 0;
      } else {
        ask = improve(middle) || ++failures % 4 == 0;
      }
    }
    low_ = high_;
    return true;
  }
  double least_ns() const { return high_; }

  /// The best so far, which another one replaces.
  void remember() {
    if (best_ && problem_.earlier != nullptr) problem_.earlier->push_back(*best_);
  }

  /// When time ran out: the best partition so far. Nothing when none was found.
  std::optional<Partition> best_so_far() {
    if (best_) best_->open_ns = std::max(0.0, high_ - low_);
    return std::move(best_);
  }

 private:
  // No stage takes less than its computation shared out.
  double fair_share_ns() const {
    double speed = problem_.cluster.device.speed * problem_.workers;
    for (const cluster::DeviceGroup& group : problem_.cluster.groups)
      speed += group.count * group.device.speed;
    return static_cast<double>(problem_.states.sums(problem_.states.full()).compute_ns) / speed *
           (1 - 1e-9);
  }

  // The optimum is often near what is known to be least, and a search for a time near it is quick.
  void approach() {
    for (double above = 0.03; low_ > 0 && low_ * (1 + above) < high_; above *= 2) {
      if (improve(low_ * (1 + above))) return;
    }
  }

  bool improve(double limit_ns) {
    auto found = search_.within(limit_ns, Wanted::Any);
    if (!found) {
      low_ = std::max(low_, limit_ns);
      return false;
    }
    high_ = found->bottleneck_ns;
    remember();
    best_ = std::move(found);
    return true;
  }

  const PartitionProblem& problem_;
  PartitionSearch& search_;
  double low_ = 0;
  double high_ = kNoTimeLimit;
  std::optional<Partition> best_;
};

std::optional<Partition> least_bottleneck(const PartitionProblem& problem, Wanted wanted) {
  const auto search = make_search(problem);
  Bottleneck bottleneck(problem, *search);
  try {
    if (!bottleneck.find()) return std::nullopt;
    auto best = search->within(bottleneck.least_ns(), wanted);
    bottleneck.remember();
    return best;
  } catch (const SearchEnded&) {
    auto best = bottleneck.best_so_far();
    if (!best) throw;
    return best;
  }
}

bool fits_memory(const PartitionProblem& problem, const Partition& partition) {
  const StageChooser chooser(problem);
  const int64_t limit = chooser.memory_limit(problem.cluster.device);
  return limit <= 0 || needed_bytes(problem, partition) <= limit;
}

// The partition moved to the first workers, without gaps, if it is not slower than `limit_ns` there
// and fits.
std::optional<Partition> closed_up(const PartitionProblem& problem, Partition partition,
                                   double limit_ns) {
  int first = 0;
  for (cluster::WorkerRange& place : partition.places) {
    place.first = first;
    first = place.end();
  }
  partition.bottleneck_ns = slowest_ns(problem, partition);
  if (partition.bottleneck_ns > limit_ns || !fits_memory(problem, partition)) return std::nullopt;
  return partition;
}

// Cuts a worker's worth of layers off the front or the end of some stage.
std::optional<Partition> with_one_more_stage(const PartitionProblem& problem,
                                             const Partition& partition, double limit_ns) {
  for (size_t k = 0; k < partition.ends.size(); ++k) {
    problem.time.check();
    const int begin = k == 0 ? 0 : partition.ends[k - 1];
    for (int state = begin + 1; state < partition.ends[k]; ++state) {
      if (!problem.states.nested(begin, state) || !problem.states.nested(state, partition.ends[k]))
        continue;
      Partition split = partition;
      const auto at = static_cast<std::ptrdiff_t>(k);
      split.ends.insert(split.ends.begin() + at, state);
      split.recompute.insert(split.recompute.begin() + at, partition.recompute[k]);
      split.places.insert(split.places.begin() + at, cluster::WorkerRange{.first = 0, .count = 1});
      if (auto found = closed_up(problem, split, limit_ns)) return found;
      std::swap(split.places[k], split.places[k + 1]);
      if (auto found = closed_up(problem, split, limit_ns)) return found;
    }
  }
  return std::nullopt;
}

// Puts the idle workers to use, where that is possible without becoming slower: all in one stage,
// or one by one in stages of their own.
std::optional<Partition> filled_up(const PartitionProblem& problem, const Partition& partition) {
  std::optional<Partition> current = partition;
  while (current) {
    const int idle = problem.workers - current->num_workers();
    for (size_t widened = 0; widened < current->places.size(); ++widened) {
      problem.time.check();
      Partition filled = *current;
      filled.places[widened].count += idle;
      if (auto found = closed_up(problem, std::move(filled), partition.bottleneck_ns)) return found;
    }
    if (idle == 0) return std::nullopt;
    current = with_one_more_stage(problem, *current, partition.bottleneck_ns);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Partition> best_partition(const PartitionProblem& given) {
  PartitionProblem problem = normalised(given);
  if (!problem.use_all_workers || problem.straight) return least_bottleneck(problem, Wanted::Best);
  // No partition that uses all workers is faster than the best of those that need not.
  if (problem.cluster.uniform()) {
    problem.use_all_workers = false;
    problem.at_least_ns = 0;  // which holds for those that use all
    const auto best = least_bottleneck(problem, Wanted::Best);
    if (!best) return std::nullopt;
    if (auto printed = paper_partition(problem);
        printed && printed->bottleneck_ns <= best->bottleneck_ns)
      return printed;
    if (auto filled = filled_up(problem, *best)) return filled;
    problem.use_all_workers = true;
    problem.at_least_ns = std::max(given.at_least_ns, best->bottleneck_ns);
  }
  return least_bottleneck(problem, Wanted::Any);
}

std::optional<LeastMemory> least_memory(const PartitionProblem& given) {
  PartitionProblem problem = normalised(given);
  problem.memory.limit_bytes = INT64_MAX;
  const auto search = make_search(problem);
  std::optional<LeastMemory> best;
  const auto improve = [&](int64_t limit_bytes) {
    problem.memory.limit_bytes = limit_bytes;
    auto found = search->within(kNoTimeLimit, Wanted::Any);
    if (!found) return false;
    const int64_t needed = needed_bytes(problem, *found);
    best = LeastMemory{needed, std::move(*found)};
    return true;
  };
  if (!improve(INT64_MAX)) return std::nullopt;
  // As for the time: bisect, then ask for anything strictly smaller. A limit of 0 would mean none.
  int64_t low = 0;
  while (best->bytes - low > 1 + best->bytes / 10'000) {
    const int64_t middle = low + (best->bytes - low) / 2;
    if (!improve(middle)) low = middle;
  }
  while (best->bytes > 1 && improve(best->bytes - 1)) {
  }
  problem.memory.limit_bytes = std::max<int64_t>(best->bytes, 1);
  return LeastMemory{problem.memory.limit_bytes,
                     search->within(kNoTimeLimit, Wanted::Best).value()};
}

}  // namespace penstock::planner
