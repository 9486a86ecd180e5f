#include "penstock/planner/families/chunk_cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace penstock::planner {

namespace {

constexpr int kMostRounds = 400;
constexpr double kAccuracy = 1e-3;

std::vector<double> loads_of(const LayerRuns& runs, const std::vector<int>& ends,
                             const std::vector<int>& worker_of, const std::vector<double>& speeds) {
  std::vector<double> loads(speeds.size(), 0);
  int begin = 0;
  for (size_t c = 0; c < ends.size(); ++c) {
    const auto w = static_cast<size_t>(worker_of[c]);
    loads[w] += static_cast<double>(runs.compute_ns(begin, ends[c])) / speeds[w];
    begin = ends[c];
  }
  return loads;
}

// Where a V may be cut, and how much computation lies before: all positions, or so many of them.
struct Positions {
  std::vector<int> at;
  std::vector<double> before_ns;

  explicit Positions(const LayerRuns& runs) {
    const int n = runs.num_layers();
    const auto total = static_cast<double>(runs.compute_ns(0, n));
    double next_ns = 0;
    for (int i = 0; i <= n; ++i) {
      const auto here_ns = static_cast<double>(runs.compute_ns(0, i));
      if (n > kMostFoldPositions && i > 0 && i < n && here_ns < next_ns) continue;
      next_ns = here_ns + total / kMostFoldPositions;
      at.push_back(i);
      before_ns.push_back(here_ns);
    }
  }
  int last() const { return static_cast<int>(at.size()) - 1; }
  double between(int i, int j) const {
    return before_ns[static_cast<size_t>(j)] - before_ns[static_cast<size_t>(i)];
  }
  // The last position at which no more than that much computation lies before.
  int furthest(double most_ns) const {
    return static_cast<int>(std::upper_bound(before_ns.begin(), before_ns.end(), most_ns) -
                            before_ns.begin()) -
           1;
  }
};

class FoldSearch {
 public:
  FoldSearch(const Positions& positions, const std::vector<double>& speeds)
      : positions_(positions), speeds_(speeds) {}

  // Whether every worker can keep the time; chunks may be empty unless `strict`.
  bool within(double limit_ns, bool strict) {
    const auto size = static_cast<size_t>(positions_.last()) + 1;
    const int workers = static_cast<int>(speeds_.size());
    taken_.assign(1, std::vector<int>(size, -1));
    from_.clear();
    taken_[0].back() = 0;
    for (int w = 0; w + 1 < workers; ++w)
      take_off(limit_ns * speeds_[static_cast<size_t>(w)], strict, 2 * (workers - 1 - w));
    return rest(limit_ns * speeds_.back(), strict) >= 0;
  }

  // The positions that end the runs, after a strict success.
  std::vector<int> ends(double limit_ns) const {
    int j = rest(limit_ns * speeds_.back(), true);
    std::vector<int> ends{positions_.last()};
    const int middle_begin = taken_.back()[static_cast<size_t>(j)];
    const double half_ns = (positions_.before_ns[static_cast<size_t>(middle_begin)] +
                            positions_.before_ns[static_cast<size_t>(j)]) /
                           2;
    const int middle = std::clamp(positions_.furthest(half_ns), middle_begin + 1, j - 1);
    for (size_t w = taken_.size() - 1; w > 0; --w) {
      ends.push_back(taken_[w][static_cast<size_t>(j)]);
      ends.push_back(j);
      j = from_[w - 1][static_cast<size_t>(j)];
    }
    ends.push_back(middle);
    std::sort(ends.begin(), ends.end());
    for (int& end : ends) end = positions_.at[static_cast<size_t>(end)];
    return ends;
  }

 private:
  // For every end j' of the inner rest the longest beginning, over the ends j of the rest before.
  void take_off(double most_ns, bool strict, int needed_inside) {
    const std::vector<int>& before = taken_.back();
    std::vector<int> after(before.size(), -1);
    std::vector<int> from(before.size(), -1);
    for (int j = positions_.last(); j >= 0; --j) {
      const int i = before[static_cast<size_t>(j)];
      if (i < 0) continue;
      const double begin_ns = positions_.before_ns[static_cast<size_t>(i)];
      int furthest = positions_.furthest(begin_ns + most_ns);
      for (int inner = strict ? j - 1 : j; inner >= i; --inner) {
        const double left_ns = most_ns - positions_.between(inner, j);
        if (left_ns < 0) break;
        while (positions_.before_ns[static_cast<size_t>(furthest)] > begin_ns + left_ns) --furthest;
        const int reach = std::min(furthest, strict ? inner - needed_inside : inner);
        if (reach < (strict ? i + 1 : i) || reach <= after[static_cast<size_t>(inner)]) continue;
        after[static_cast<size_t>(inner)] = reach;
        from[static_cast<size_t>(inner)] = j;
      }
    }
    taken_.push_back(std::move(after));
    from_.push_back(std::move(from));
  }

  // The end of an inner rest that the last worker can take, -1 for none: the one that leaves both
  // sides most alike.
  int rest(double most_ns, bool strict) const {
    const std::vector<int>& taken = taken_.back();
    int best = -1;
    double best_skew = 0;
    for (int j = 0; j <= positions_.last(); ++j) {
      const int i = taken[static_cast<size_t>(j)];
      if (i < 0 || j - i < (strict ? 2 : 0) || positions_.between(i, j) > most_ns) continue;
      const double skew =
          std::fabs(positions_.between(0, i) - positions_.between(j, positions_.last()));
      if (best >= 0 && skew >= best_skew) continue;
      best = j;
      best_skew = skew;
    }
    return best;
  }

  const Positions& positions_;
  const std::vector<double>& speeds_;
  /// After each worker, by the end of the inner rest: its begin; -1 for none.
  std::vector<std::vector<int>> taken_;
  std::vector<std::vector<int>> from_;  ///< the end of the rest before
};

// The least time in [low, high] that passes, to the accuracy; nothing when `high` does not.
template <class Passes>
std::optional<double> least_time(double low, double high, const Passes& passes) {
  if (passes(low)) return low;
  if (!passes(high)) return std::nullopt;
  while (high - low > kAccuracy * high) {
    const double middle = low + (high - low) / 2;
    (passes(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

double slowest_worker_ns(const LayerRuns& runs, const std::vector<int>& ends,
                         const std::vector<int>& worker_of, const std::vector<double>& speeds) {
  const std::vector<double> loads = loads_of(runs, ends, worker_of, speeds);
  return *std::max_element(loads.begin(), loads.end());
}

std::vector<int> improved(const LayerRuns& runs, std::vector<int> ends,
                          const std::vector<int>& worker_of, const std::vector<double>& speeds,
                          const std::function<bool(int)>& may_cut) {
  std::vector<double> loads = loads_of(runs, ends, worker_of, speeds);
  const auto move = [&](size_t c, int to) {
    const auto before = static_cast<size_t>(worker_of[c]);
    const auto after = static_cast<size_t>(worker_of[c + 1]);
    if (before == after) return false;
    const int begin = c == 0 ? 0 : ends[c - 1];
    if (to <= begin || to >= ends[c + 1] || !may_cut(to)) return false;
    const auto moved = static_cast<double>(to > ends[c] ? runs.compute_ns(ends[c], to)
                                                        : -runs.compute_ns(to, ends[c]));
    const double new_before = loads[before] + moved / speeds[before];
    const double new_after = loads[after] - moved / speeds[after];
    // Less for the slower of the two: then no other becomes the slowest.
    const double old_most = std::max(loads[before], loads[after]);
    const double new_most = std::max(new_before, new_after);
    if (!(new_most < old_most * (1 - 1e-9))) return false;
    loads[before] = new_before;
    loads[after] = new_after;
    ends[c] = to;
    return true;
  };
  for (int round = 0; round < kMostRounds; ++round) {
    bool moved = false;
    for (size_t c = 0; c + 1 < ends.size(); ++c) {
      for (const int step : {1, -1, 2, -2, 4, -4}) moved = move(c, ends[c] + step) || moved;
    }
    if (!moved) break;
  }
  return ends;
}

Fold best_fold(const LayerRuns& runs, const std::vector<double>& speeds) {
  const Positions positions(runs);
  const int workers = static_cast<int>(speeds.size());
  if (positions.last() < 2 * workers) return {};
  const double total = positions.between(0, positions.last());
  const double fair_ns = total / std::accumulate(speeds.begin(), speeds.end(), 0.0);
  const double alone_ns = total / *std::min_element(speeds.begin(), speeds.end());
  FoldSearch search(positions, speeds);
  Fold fold;
  const auto relaxed =
      least_time(fair_ns, alone_ns, [&](double ns) { return search.within(ns, false); });
  const double low = relaxed.value_or(fair_ns);
  // The bisection's upper end; nothing below its lower one passes.
  if (runs.num_layers() <= kMostFoldPositions)
    fold.bound_ns = low <= fair_ns ? fair_ns : low * (1 - kAccuracy);
  const auto strict = least_time(low, alone_ns, [&](double ns) { return search.within(ns, true); });
  if (!strict || !search.within(*strict, true)) return fold;
  fold.ends = search.ends(*strict);
  std::vector<int> worker_of(2 * speeds.size());
  for (int c = 0; c < 2 * workers; ++c)
    worker_of[static_cast<size_t>(c)] = std::min(c, 2 * workers - 1 - c);
  fold.slowest_ns = slowest_worker_ns(runs, fold.ends, worker_of, speeds);
  return fold;
}

}  // namespace penstock::planner
