#include "penstock/planner/cuts/depth_graph.h"

#include <algorithm>

namespace penstock::planner {

bool meets(const DepthIntervals& intervals, int64_t least_ns, int64_t most_ns) {
  const auto at = std::lower_bound(
      intervals.begin(), intervals.end(), least_ns,
      [](const auto& interval, int64_t depth_ns) { return interval.second < depth_ns; });
  return at != intervals.end() && at->first <= most_ns;
}

DepthGraph::DepthGraph(const DepthIntervals& cells, int64_t total_ns, int workers,
                       const std::function<int64_t(double)>& replicas_for)
    : cells_(cells),
      workers_(workers),
      nodes_(cells.size() + 2),
      steps_(nodes_ * nodes_, workers_ + 1) {
  const auto first = [&](size_t node) {
    return node == 0 ? 0 : node == nodes_ - 1 ? total_ns : cells[node - 1].first;
  };
  const auto last = [&](size_t node) {
    return node == 0 ? 0 : node == nodes_ - 1 ? total_ns : cells[node - 1].second;
  };
  for (size_t from = 0; from < nodes_; ++from) {
    for (size_t to = from + 1; to < nodes_; ++to) {
      steps(from, to) =
          replicas_for(static_cast<double>(std::max<int64_t>(0, first(to) - last(from))));
      // Larger stages only take more.
      if (steps(from, to) > workers_) break;
    }
  }
  // The caller knows more about a single stage than its computation: allow_single_stage().
  steps(0, nodes_ - 1) = workers_ + 1;
  single_ = steps_;
}

// No fewer workers lead to a later node: a path to it, cut short, leads to any node before it. So
// loops end where too many are needed.
void DepthGraph::join_within_units(const std::vector<bool>& occupied, int unit) {
  std::vector<int64_t> joined = single_;
  std::vector<int64_t> ways(nodes_);
  for (size_t from = 0; from + 1 < nodes_; ++from) {
    ways.assign(nodes_, int64_t{unit} + 1);
    for (size_t to = from + 1; to < nodes_ && steps(from, to) <= unit; ++to)
      ways[to] = steps(from, to);
    for (size_t via = from + 1; via + 1 < nodes_ && ways[via] <= unit; ++via) {
      if (!occupied[via - 1]) continue;
      for (size_t to = via + 1; to < nodes_ && ways[via] + steps(via, to) <= unit; ++to)
        ways[to] = std::min(ways[to], ways[via] + steps(via, to));
    }
    for (size_t to = from + 1; to < nodes_ && ways[to] <= unit; ++to)
      joined[from * nodes_ + to] = std::min(joined[from * nodes_ + to], ways[to]);
  }
  steps_ = std::move(joined);
}

bool DepthGraph::find_paths(const std::vector<bool>& occupied) {
  const int64_t none = workers_ + 1;
  before_.assign(nodes_, none);
  after_.assign(nodes_, none);
  before_[0] = 0;
  after_[nodes_ - 1] = 0;
  const auto stands = [&](size_t node) {
    return node == 0 || node == nodes_ - 1 || occupied[node - 1];
  };
  for (size_t to = 1; to < nodes_; ++to) {
    if (!stands(to)) continue;
    for (size_t from = 0; from < to; ++from)
      before_[to] = std::min(before_[to], before_[from] + steps(from, to));
  }
  for (size_t from = nodes_ - 1; from-- > 0;) {
    if (!stands(from)) continue;
    for (size_t to = from + 1; to < nodes_; ++to)
      after_[from] = std::min(after_[from], after_[to] + steps(from, to));
  }
  return single_stage_ || before_[nodes_ - 1] <= workers_;
}

DepthIntervals DepthGraph::promising(bool last_call_only) const {
  DepthIntervals found;
  for (size_t node = 1; node + 1 < nodes_; ++node) {
    if (before_[node] + after_[node] <= workers_) found.push_back(cells_[node - 1]);
  }
  if (last_call_only) return found;
  for (size_t from = 0; from + 1 < nodes_; ++from) {
    for (size_t to = nodes_ - 1; to > from; --to) {
      if (before_[from] + steps(from, to) + after_[to] > workers_) continue;
      found.emplace_back(from == 0 ? cells_.front().first : cells_[from - 1].first,
                         to == nodes_ - 1 ? cells_.back().second : cells_[to - 1].second);
      break;
    }
  }
  std::sort(found.begin(), found.end());
  DepthIntervals merged;
  for (const auto& interval : found) {
    if (!merged.empty() && interval.first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, interval.second);
    } else {
      merged.push_back(interval);
    }
  }
  return merged;
}

}  // namespace penstock::planner
