#include "penstock/planner/partition/load_bound.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>

namespace penstock::planner {

LoadBound::LoadBound(const PartitionProblem& problem, const Units& units) : problem_(problem) {
  std::vector<int> starts{1, 2, 5, 17};
  for (int kind = 1; kind < units.top(); ++kind) starts.push_back(units.size(kind) + 1);
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  int kind = 0;
  for (const int least : starts) {
    if (least > problem.workers) return;
    while (units.size(kind) < least) ++kind;
    tiers_.push_back({.least = least,
                      .level = units.level(kind),
                      .load = std::vector<double>(static_cast<size_t>(problem.states.size()))});
  }
}

void LoadBound::measure(double limit_ns, double speed) {
  // Below this the bound is given up; it would only save time.
  const double per_ns = limit_ns > 1e-9 ? (1 - 1e-12) / limit_ns : 0;
  for (Tier& tier : tiers_) {
    const SegmentBound bound =
        problem_.model.least_worker_ns(tier.least, tier.level, problem_.memory.micro_batches);
    tier.fixed = bound.fixed_ns * per_ns;
    for (int i = 0; i < problem_.states.size(); ++i) {
      const LayerSums& sums = problem_.states.sums(i);
      const double work_ns = bound.per_compute_ns * static_cast<double>(sums.compute_ns) +
                             bound.per_step_ns * static_cast<double>(sums.step_ns);
      tier.load[static_cast<size_t>(i)] =
          (work_ns / speed + bound.per_weight_byte * static_cast<double>(sums.weight_bytes)) *
          per_ns;
    }
  }
}

int LoadBound::least_replicas(int i, int j) const {
  const auto between = [&](const Tier& tier) {
    return tier.load[static_cast<size_t>(j)] - tier.load[static_cast<size_t>(i)];
  };
  const double least = between(tiers_.front());
  const Tier& tier = tiers_[tier_of(least)];
  const double workers = std::ceil(std::max(least, between(tier) + tier.fixed) - kRounding);
  return workers < 1 ? 1 : static_cast<int>(std::min(workers, 2e9));
}

namespace {

// The search of label_search.cpp turned round, with one number per state: from the input end, where
// stages begin at worker 0.
class FrontSearch {
 public:
  FrontSearch(const PartitionProblem& problem, const Units& units, const LoadBound& loads,
              const Nesting& nesting, double limit_ns, double speed)
      : problem_(problem),
        units_(units),
        loads_(loads),
        nesting_(nesting),
        chooser_(problem),
        limit_ns_(limit_ns),
        speed_(speed),
        covered_(nesting.num_words()),
        blocks_(nesting.num_words(),
                Block{.promise = std::vector<double>(loads.size(), kNoTimeLimit)}),
        promises_(loads.size(), std::vector<double>(static_cast<size_t>(problem.states.size()))) {}

  /// With `anywhere` every stage finds the place that suits it best, so that the least end is the
  /// fewest workers.
  std::vector<int> least_ends(const std::vector<int>& most_free, bool anywhere) {
    const CutStates& states = problem_.states;
    anywhere_ = anywhere;
    ends_.assign(static_cast<size_t>(states.size()), problem_.workers + 1);
    ends_[0] = 0;
    add_covered(0);
    for (int j = 1; j < states.size(); ++j) {
      problem_.time.check();
      const auto s = static_cast<size_t>(j);
      if (most_free[s] < 0) continue;
      ends_[s] = most_free[s] + 1;
      cover(j);
      if (ends_[s] <= most_free[s]) {
        add_covered(j);
      } else {
        ends_[s] = problem_.workers + 1;
      }
    }
    return ends_;
  }

 private:
  struct Block {
    double load = 0;              ///< the largest of the states that can be reached
    int end = INT_MAX / 2;        ///< the least
    std::vector<double> promise;  ///< the least, per tier
  };

  void add_covered(int state) {
    const auto s = static_cast<size_t>(state);
    Block& block = blocks_[s / 64];
    block.load = std::max(block.load, loads_.load(state));
    block.end = std::min(block.end, ends_[s]);
    for (size_t t = 0; t < loads_.size(); ++t) {
      promises_[t][s] = ends_[s] - loads_[t].load[s] + loads_[t].fixed;
      block.promise[t] = std::min(block.promise[t], promises_[t][s]);
    }
    covered_[s / 64] |= uint64_t{1} << (s % 64);
  }

  void cover(int j) {
    const auto s = static_cast<size_t>(j);
    int& best = ends_[s];
    nesting_.subsets(j, subsets_);
    for (size_t b = s / 64 + 1; b-- > 0;) {
      uint64_t left = subsets_[b] & covered_[b];
      if (left == 0) continue;
      const double least_load = loads_.load(j) - blocks_[b].load;
      if (blocks_[b].end + std::max(1.0, std::ceil(least_load - kRounding)) >= best) continue;
      const size_t block_tier = loads_.tier_of(least_load);
      if (blocks_[b].promise[block_tier] + loads_[block_tier].load[s] - kRounding > best - 1)
        continue;
      while (left != 0) {
        const size_t i = b * 64 + 63 - static_cast<size_t>(std::countl_zero(left));
        left &= ~(uint64_t{1} << (i % 64));
        if (ends_[i] + 1 >= best) continue;
        const size_t tier = loads_.tier_of(loads_.load(j) - loads_.load(static_cast<int>(i)));
        if (promises_[tier][i] + loads_[tier].load[s] - kRounding > best - 1) continue;
        const int least = loads_.least_replicas(static_cast<int>(i), j);
        if (int64_t{ends_[i]} + least < best) best = least_end(static_cast<int>(i), j, least, best);
      }
    }
  }

  // The least end of the stage (i, j) below `best`, or `best`.
  int least_end(int i, int j, int least, int best) const {
    int best_kind = units_.top();
    for (int kind = 0; kind == 0 || kind < best_kind; ++kind) {
      const int free = ends_[static_cast<size_t>(i)];
      const int room = units_.before(free, kind);
      const int begin = room == 0 ? free : free + units_.size(kind) - room;
      const int most = best - 1 - begin;
      if (most < least) break;
      const auto [replicas, found_kind] = fewest(i, j, begin, least, most);
      if (replicas == 0) continue;
      best = begin + replicas;
      best_kind = found_kind;
    }
    return best;
  }

  std::pair<int, int> fewest(int i, int j, int begin, int least, int most) const {
    int below = 0;
    for (int kind = 0; below < most; ++kind) {
      const int room = units_.size(kind) - (anywhere_ ? 0 : units_.before(begin, kind));
      const int upto = kind == units_.top() ? most : std::min(most, room);
      if (upto >= least && upto > below) {
        const StageChoice choice = chooser_.fewest(i, j, 0, limit_ns_, std::max(least, below + 1),
                                                   upto, units_.level(kind), speed_, 0);
        if (choice.replicas > 0) return {choice.replicas, kind};
      }
      below = upto;
    }
    return {0, units_.top()};
  }

  const PartitionProblem& problem_;
  const Units& units_;
  const LoadBound& loads_;
  const Nesting& nesting_;
  const StageChooser chooser_;
  const double limit_ns_;
  const double speed_;
  bool anywhere_ = false;
  std::vector<int> ends_;
  StateSet covered_;  ///< states that can be reached
  StateSet subsets_;  ///< of the state being covered
  std::vector<Block> blocks_;
  std::vector<std::vector<double>> promises_;  ///< per tier and state: the least end less the load
};

}  // namespace

FrontBound front_bound(const PartitionProblem& problem, const Units& units, const LoadBound& loads,
                       const Nesting& nesting, const std::vector<int>& most_free, double limit_ns,
                       double speed) {
  FrontBound bound;
  bound.end =
      FrontSearch(problem, units, loads, nesting, limit_ns, speed).least_ends(most_free, false);
  // Without units to fit into, all places are as good.
  bound.workers = units.top() <= 1 ? bound.end
                                   : FrontSearch(problem, units, loads, nesting, limit_ns, speed)
                                         .least_ends(most_free, true);
  return bound;
}

}  // namespace penstock::planner
