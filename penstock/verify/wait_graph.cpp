#include "penstock/verify/wait_graph.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

namespace penstock::verify {
namespace {

constexpr int32_t kNone = -1;

std::vector<WorkerId> from_lowest(std::vector<WorkerId> cycle) {
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
  return cycle;
}

}  // namespace

WaitGraph::WaitGraph(const Execution& execution, int32_t num_workers)
    : execution_(execution),
      next_(static_cast<size_t>(num_workers), kNone),
      barrier_of_(next_.size(), kNone),
      reaches_(next_.size(), kNone),
      length_(next_.size(), 0) {
  find_barriers();
  find_single_waits();
  follow_single_waits();
  find_ways();
}

/// Two workers at different barriers with the same members (syncs of one stage, norms, computations
/// of one team) wait for each other. Otherwise the members have one such barrier at most, which
/// keeps the graph linear.
void WaitGraph::find_barriers() {
  std::unordered_map<int64_t, int32_t> barrier_of_key;
  for (size_t w = 0; w < next_.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (!execution_.is_blocked(worker) || !execution_.is_at_barrier(worker)) continue;
    const int64_t key = execution_.barrier_key(execution_.blocked_at(worker));
    const auto number = static_cast<int32_t>(barriers_.size());
    const auto [place, is_new] = barrier_of_key.try_emplace(key, number);
    if (is_new) barriers_.push_back({.first = worker});
    const WorkerId first = barriers_[static_cast<size_t>(place->second)].first;
    if (execution_.is_at(worker, execution_.blocked_at(first))) {
      barrier_of_[w] = place->second;
    } else if (simple_cycle_.empty()) {
      simple_cycle_ = {first, worker};
    }
  }
}

void WaitGraph::find_single_waits() {
  for (size_t w = 0; w < next_.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (execution_.is_blocked(worker) && !execution_.is_at_barrier(worker))
      next_[w] = execution_.waits_for(worker).value;
  }
}

/// Follows each chain of single waits once, to its barrier, its end or around a cycle.
void WaitGraph::follow_single_waits() {
  std::vector<int32_t> chain;
  std::vector<int32_t> place(next_.size(), kNone);  // in the current chain
  std::vector<uint8_t> done(next_.size(), 0);
  for (size_t start = 0; start < next_.size(); ++start) {
    chain.clear();
    auto w = static_cast<int32_t>(start);
    while (w >= 0 && done[static_cast<size_t>(w)] == 0 && place[static_cast<size_t>(w)] == kNone) {
      place[static_cast<size_t>(w)] = static_cast<int32_t>(chain.size());
      chain.push_back(w);
      w = next_[static_cast<size_t>(w)];
    }
    if (w >= 0 && done[static_cast<size_t>(w)] == 0) {
      const auto first = static_cast<size_t>(place[static_cast<size_t>(w)]);
      if (simple_cycle_.empty() || chain.size() - first < simple_cycle_.size()) {
        simple_cycle_.clear();
        for (size_t i = first; i < chain.size(); ++i) simple_cycle_.push_back(WorkerId{chain[i]});
      }
      w = kNone;
    }
    int32_t reached = w >= 0 ? reaches_[static_cast<size_t>(w)] : kNone;
    int32_t length = w >= 0 ? length_[static_cast<size_t>(w)] : 0;
    for (size_t i = chain.size(); i-- > 0;) {
      const auto worker = static_cast<size_t>(chain[i]);
      if (barrier_of_[worker] != kNone) {
        reached = barrier_of_[worker];
        length = 0;
      }
      reaches_[worker] = reached;
      length_[worker] = ++length;
      done[worker] = 1;
    }
  }
}

void WaitGraph::find_ways() {
  ways_.resize(barriers_.size());
  // of the current barrier: place in its ways
  std::vector<int32_t> way_to(barriers_.size(), kNone);
  for (size_t i = 0; i < barriers_.size(); ++i) {
    std::vector<Way>& ways = ways_[i];
    const Action& action = execution_.blocked_at(barriers_[i].first);
    execution_.barrier_members(action, [&](WorkerId member) {
      if (!execution_.is_blocked(member)) barriers_[i].ended = member;
      const int32_t to = reaches_[member.index()];
      if (barrier_of_[member.index()] == static_cast<int32_t>(i) || to == kNone) return;
      const int32_t length = length_[member.index()];
      int32_t& place = way_to[static_cast<size_t>(to)];
      if (place == kNone) {
        place = static_cast<int32_t>(ways.size());
        ways.push_back({to, length, member});
      } else if (length < ways[static_cast<size_t>(place)].length) {
        ways[static_cast<size_t>(place)] = {to, length, member};
      }
    });
    for (const Way& way : ways) way_to[static_cast<size_t>(way.to)] = kNone;
  }
}

/// Shortest ways from the barrier to itself over barriers with higher numbers: cycles through lower
/// ones have been found already.
void WaitGraph::search_from(int32_t barrier, Cycle& best, int64_t& steps_left) const {
  using Entry = std::pair<int64_t, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  // by barrier: length and the barrier before
  std::unordered_map<int32_t, std::pair<int64_t, int32_t>> shortest;
  const auto limit = [&] {
    return best.workers.empty() ? INT64_MAX : static_cast<int64_t>(best.workers.size());
  };
  queue.push({0, barrier});
  while (!queue.empty()) {
    const auto [length, at] = queue.top();
    queue.pop();
    if (length >= limit()) return;
    if (at == barrier && length > 0) {
      std::vector<Way> ways;
      for (int32_t to = barrier; ways.empty() || to != barrier;) {
        const int32_t from = shortest.at(to).second;
        const auto& all = ways_[static_cast<size_t>(from)];
        ways.push_back(
            *std::find_if(all.begin(), all.end(), [&](const Way& way) { return way.to == to; }));
        to = from;
      }
      std::reverse(ways.begin(), ways.end());
      best.workers = workers_along(ways);
      return;
    }
    if (at != barrier && shortest.at(at).first < length) continue;
    for (const Way& way : ways_[static_cast<size_t>(at)]) {
      if (--steps_left < 0) return;
      const int64_t total = length + way.length;
      if (way.to < barrier || total >= limit()) continue;
      const auto [place, is_new] = shortest.try_emplace(way.to, total, at);
      if (!is_new && place->second.first <= total) continue;
      place->second = {total, at};
      queue.push({total, way.to});
    }
  }
}

std::vector<WorkerId> WaitGraph::workers_along(const std::vector<Way>& ways) const {
  std::vector<WorkerId> workers;
  for (const Way& way : ways) {
    int32_t w = way.first.value;
    for (; barrier_of_[static_cast<size_t>(w)] == kNone; w = next_[static_cast<size_t>(w)])
      workers.push_back(WorkerId{w});
    workers.push_back(WorkerId{w});
  }
  return workers;
}

// Follows one way from barrier to barrier. Where that ends, a worker waits for another whose list
// has ended or that is on a simple cycle.
std::vector<WorkerId> WaitGraph::some_cycle() const {
  std::vector<int32_t> place(ways_.size(), kNone);  // on the path
  std::vector<Way> path;
  for (size_t at = 0; at < ways_.size() && !ways_[at].empty();
       at = static_cast<size_t>(path.back().to)) {
    if (place[at] != kNone) return workers_along({path.begin() + place[at], path.end()});
    place[at] = static_cast<int32_t>(path.size());
    path.push_back(ways_[at].front());
  }
  return {};
}

WaitGraph::Cycle WaitGraph::shortest_cycle(int64_t most_steps) const {
  Cycle best{.workers = simple_cycle_};
  int64_t steps_left = most_steps;
  for (size_t i = 0; i < ways_.size() && steps_left >= 0; ++i)
    search_from(static_cast<int32_t>(i), best, steps_left);
  best.shortest = steps_left >= 0;
  if (best.workers.empty() && !best.shortest) best.workers = some_cycle();
  if (!best.workers.empty()) best.workers = from_lowest(std::move(best.workers));
  return best;
}

std::vector<WaitGraph::Edge> WaitGraph::abandoned(size_t most) const {
  std::vector<Edge> edges;
  for (size_t w = 0; w < next_.size() && edges.size() < most; ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (!execution_.is_blocked(worker)) continue;
    const WorkerId other = barrier_of_[w] == kNone
                               ? WorkerId{next_[w]}
                               : barriers_[static_cast<size_t>(barrier_of_[w])].ended;
    if (other.value >= 0 && !execution_.is_blocked(other)) edges.push_back({worker, other});
  }
  return edges;
}

}  // namespace penstock::verify
