#include "penstock/planner/cuts/cut_space.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>

#include "penstock/planner/cuts/cut_cursor.h"
#include "penstock/planner/cuts/layer_orders.h"
#include "penstock/util/error.h"

namespace penstock::planner {

namespace {

// Greedy orders look at many layers per step; beyond this, the order of the ids and the balanced
// one must do.
constexpr int kMostLayersForGreedyOrders = 20'000;
// Depths at which the cheapest cut is looked for, and the layers decided for each.
constexpr size_t kMostDepths = 128;
constexpr int64_t kStepsPerDepth = 5'000;
// Intervals of depth that are looked at one by one, and the layers decided for each.
constexpr int64_t kFineCells = 256;
constexpr int64_t kCoarseCells = 128;
constexpr int64_t kStepsPerCell = 4'000;
// Layers looked at while searching the neighbourhood of one cut.
constexpr int64_t kNeighbourSteps = 100'000;

std::vector<int> layers_in_order(const graph::ModelGraph& graph) {
  std::vector<int> order(static_cast<size_t>(graph.num_layers()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Where a cut can lie between two of the given depths that are no further apart than `unit_ns`;
// ascending and disjoint.
DepthIntervals near_depths(std::vector<int64_t> depths, double unit_ns) {
  std::sort(depths.begin(), depths.end());
  DepthIntervals intervals;
  size_t j = 0;
  for (size_t i = 0; i < depths.size(); ++i) {
    j = std::max(j, i);
    while (j + 1 < depths.size() && static_cast<double>(depths[j + 1] - depths[i]) <= unit_ns) ++j;
    if (i > 0 && depths[i] == depths[i - 1]) continue;
    if (!intervals.empty() && depths[i] <= intervals.back().second) {
      intervals.back().second = depths[j];
    } else {
      intervals.emplace_back(depths[i], depths[j]);
    }
  }
  return intervals;
}

DepthIntervals equal_cells(int64_t total_ns, int64_t count) {
  DepthIntervals cells;
  const auto begin = [&](int64_t cell) {
    return static_cast<int64_t>(static_cast<__int128>(total_ns) * cell / count);
  };
  for (int64_t cell = 0; cell < count; ++cell) {
    const int64_t end = cell + 1 == count ? total_ns : begin(cell + 1) - 1;
    if (begin(cell) <= end) cells.emplace_back(begin(cell), end);
  }
  return cells;
}

}  // namespace

SearchLimits SearchLimits::within(int64_t memory_budget_bytes) {
  SearchLimits limits;
  if (memory_budget_bytes <= 0) return limits;
  // By what searches of models with some thousand layers take, with room to spare.
  constexpr int64_t kPerState = 50'000;
  constexpr int64_t kPerNode = 1'000;
  constexpr int64_t kFewest = 16;
  const auto shrink = [&](int64_t& limit, int64_t each) {
    const int64_t affordable = std::max(memory_budget_bytes / each, kFewest);
    limits.are_lowered = limits.are_lowered || affordable < limit;
    limit = std::min(limit, affordable);
  };
  shrink(limits.all_states, kPerState);
  // A search with a larger budget has these behind it, too.
  for (auto size = kFewCuts.rbegin(); size != kFewCuts.rend(); ++size) {
    if (memory_budget_bytes / (2 * kPerState) >= limits.selected_states) break;
    limits.are_lowered = true;
    limits.selected_states = *size;
  }
  shrink(limits.exact_states, kPerState);
  shrink(limits.lattice_nodes, kPerNode);
  limits.bytes = std::min(limits.bytes, memory_budget_bytes / 16);
  return limits;
}

CutSpace::CutSpace(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers,
                   const SearchLimits& limits)
    : graph_(graph), layers_(layers), limits_(limits) {
  if (layers.empty()) throw ConfigError("the model has no layer, expected at least one");
  check_totals(graph, layers);
  for (const PlannedLayer& layer : layers) total_ns_ += layer.compute_ns;
  fine_cells_ = equal_cells(total_ns_, kFineCells);
  coarse_cells_ = equal_cells(total_ns_, kCoarseCells);
  if (auto all = CutStates::all(graph, layers, limits.all_states)) {
    states_ = std::make_shared<const CutStates>(std::move(*all));
    complete_ = true;
  } else {
    lattice_ = CutLattice::build(graph, layers, limits.lattice_nodes);
  }
  const auto offer = [this](std::vector<int> order) {
    if (std::find(orders_.begin(), orders_.end(), order) == orders_.end())
      orders_.push_back(std::move(order));
  };
  offer(layers_in_order(graph));
  offer(balanced_order(graph, layers));
  if (graph.num_layers() <= kMostLayersForGreedyOrders) {
    offer(narrow_order(graph));
    offer(least_cut_order(graph, layers));
  }
  if (!complete_) states_ = states_of(selection(limits.selected_states));
}

int64_t CutSpace::bytes() const {
  constexpr int64_t kLists = 4;  // while one is made
  const auto layers = static_cast<int64_t>(layers_.size());
  const auto list =
      static_cast<int64_t>(affordable(limits_.exact_states)) * ((layers + 63) / 64 * 8);
  const int64_t orders = static_cast<int64_t>(orders_.size() * sizeof(int)) * layers;
  return CutStates::bytes_of(states_->size(), layers) + kLists * list + orders +
         (lattice_ ? lattice_->bytes() : 0);
}

std::optional<double> CutSpace::num_downsets() const {
  if (complete_) return states_->size();
  if (!lattice_) return std::nullopt;
  return lattice_->count();
}

size_t CutSpace::affordable(int64_t sets) const {
  const auto bytes_each = static_cast<int64_t>((layers_.size() + 63) / 64 * 8);
  return static_cast<size_t>(std::max<int64_t>(1, std::min(limits_.bytes / bytes_each, sets)));
}

std::shared_ptr<const CutStates> CutSpace::states_of(const LayerSets& sets) const {
  return std::make_shared<const CutStates>(graph_, layers_, sets);
}

LayerSets CutSpace::selection(int64_t most) const {
  LayerSets sets(graph_.num_layers());
  const size_t affordable_sets = affordable(most);
  // One order as completely as possible: plans of very many stages need nearly every layer.
  add_prefixes(orders_.front(), affordable_sets / 2, sets);
  for (size_t k = 1; k < orders_.size(); ++k)
    add_prefixes(orders_[k], affordable_sets / (2 * orders_.size()), sets);
  add_cheapest(affordable_sets / 8, sets);
  return sets;
}

std::vector<std::vector<bool>> CutSpace::occupied(const UsableCuts& usable) const {
  const DepthIntervals& cells = depth_cells(usable);
  std::vector<std::vector<bool>> result(usable.tiers().size(),
                                        std::vector<bool>(cells.size(), true));
  if (!lattice_) return result;
  for (size_t t = 0; t < result.size(); ++t) {
    for (size_t c = 0; c < cells.size(); ++c) {
      // What is cheap enough for an outer tier is so for this one.
      if (t > 0 && result[t - 1][c]) continue;
      const auto wanted = [&](int64_t least_ns, int64_t most_ns) {
        const int64_t from = std::max(least_ns, cells[c].first);
        const int64_t to = std::min(most_ns, cells[c].second);
        return from <= to && usable.may_split(from, to);
      };
      LayerSets none(graph_.num_layers());
      result[t][c] =
          !lattice_->list({.most_bytes = usable.tiers()[t].most_bytes, .wanted_compute = wanted},
                          {.sets = 0, .steps = kStepsPerCell}, none);
    }
  }
  return result;
}

bool CutSpace::list_within(const CutLattice::Filter& filter, size_t most, LayerSets& sets) const {
  if (lattice_) return lattice_->list(filter, {.sets = most, .steps = limits_.steps}, sets);
  for (int s = 0; s < states_->size(); ++s) {
    const int64_t compute_ns = states_->sums(s).compute_ns;
    if (states_->cut_bytes(s) > filter.most_bytes || !filter.wanted_compute(compute_ns, compute_ns))
      continue;
    if (sets.size() == most) return false;
    sets.add(states_->layers(s));
  }
  return true;
}

std::optional<LayerSets> CutSpace::list(const UsableCuts& usable, int64_t most) const {
  if (!lattice_ && !complete_) return std::nullopt;
  const size_t affordable_sets = affordable(most);
  LayerSets sets(graph_.num_layers());
  std::vector<int64_t> depths = {0, total_ns_};
  CutCursor cursor(graph_, layers_);
  int64_t done_bytes = -1;
  for (const UsableCuts::Tier& tier : usable.tiers()) {
    // The cuts of the outermost tier need no others beside them.
    const bool outermost = &tier == usable.tiers().data();
    const DepthIntervals near =
        outermost ? DepthIntervals{{0, total_ns_}} : near_depths(depths, tier.unit_ns);
    const auto wanted = [&](int64_t least_ns, int64_t most_ns) {
      return meets(near, least_ns, most_ns) && meets(tier.promising, least_ns, most_ns) &&
             usable.may_split(least_ns, most_ns);
    };
    LayerSets found(graph_.num_layers());
    if (!list_within({.most_bytes = tier.most_bytes, .wanted_compute = wanted}, affordable_sets,
                     found))
      return std::nullopt;
    for (size_t s = 0; s < found.size(); ++s) {
      cursor.move_to(found[s]);
      if (cursor.cut_bytes() <= done_bytes) continue;
      sets.add(found[s]);
      depths.push_back(cursor.sums().compute_ns);
    }
    if (sets.size() > affordable_sets) return std::nullopt;
    done_bytes = tier.most_bytes;
  }
  return sets;
}

// Where there are too many, two from each of equally long runs: the last, and the one with the
// fewest bytes across it.
void CutSpace::add_prefixes(const std::vector<int>& order, size_t most, LayerSets& sets) const {
  const size_t runs = std::max<size_t>(most / 2, 1);
  std::vector<bool> wanted(order.size(), order.size() <= most);
  if (order.size() > most) {
    CutCursor cursor(graph_, layers_);
    size_t cheapest = 0;
    int64_t least_bytes = INT64_MAX;
    for (size_t k = 0; k < order.size(); ++k) {
      cursor.add(order[k]);
      if (cursor.cut_bytes() < least_bytes) {
        least_bytes = cursor.cut_bytes();
        cheapest = k;
      }
      if ((k + 1) * runs / order.size() == k * runs / order.size()) continue;
      wanted[k] = true;
      wanted[cheapest] = true;
      least_bytes = INT64_MAX;
    }
  }
  CutCursor cursor(graph_, layers_);
  for (size_t k = 0; k < order.size(); ++k) {
    cursor.add(order[k]);
    if (wanted[k]) sets.add(cursor.bits());
  }
}

void CutSpace::add_cheapest(size_t most, LayerSets& sets) const {
  if (!lattice_) return;
  const auto depths = static_cast<int64_t>(std::min(most, kMostDepths));
  for (int64_t k = 0; k < depths; ++k) {
    const int64_t begin_ns = total_ns_ / depths * k;
    const int64_t end_ns = k + 1 == depths ? total_ns_ - 1 : total_ns_ / depths * (k + 1);
    const auto wanted = [begin_ns, end_ns](int64_t least_ns, int64_t most_ns) {
      return least_ns <= end_ns && most_ns > begin_ns;
    };
    const auto found = lattice_->cheapest({.wanted_compute = wanted}, kStepsPerDepth);
    if (!found.empty()) sets.add(found);
  }
}

LayerSets CutSpace::around(const CutStates& states, const std::vector<int>& ends,
                           const UsableCuts& usable, int64_t most_sets) const {
  LayerSets sets(graph_.num_layers());
  for (const int end : ends) sets.add(states.layers(end));
  for (int s = 0; s < states_->size() && sets.size() < affordable(most_sets); ++s) {
    if (usable.passes(states_->sums(s).compute_ns, states_->cut_bytes(s)))
      sets.add(states_->layers(s));
  }
  std::vector<size_t> stage(layers_.size(), 0);
  for (size_t l = 0; l < layers_.size(); ++l) {
    while (!states.contains(ends[stage[l]], LayerId{static_cast<int32_t>(l)})) ++stage[l];
  }
  const size_t most = affordable(most_sets) / 2;
  for (std::vector<int> order : orders_) {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return stage[static_cast<size_t>(a)] < stage[static_cast<size_t>(b)];
    });
    CutCursor cursor(graph_, layers_);
    size_t added = 0;
    for (const int layer : order) {
      cursor.add(layer);
      if (!usable.passes(cursor.sums().compute_ns, cursor.cut_bytes()) ||
          added >= most / orders_.size())
        continue;
      sets.add(cursor.bits());
      ++added;
    }
  }
  for (size_t k = 0; k + 1 < ends.size(); ++k)
    add_neighbours(states.layers(ends[k]), most / ends.size(), usable, sets);
  return sets;
}

// Breadth-first over downsets, one layer in or out per step.
void CutSpace::add_neighbours(std::span<const uint64_t> cut, size_t most, const UsableCuts& usable,
                              LayerSets& sets) const {
  CutCursor cursor(graph_, layers_);
  std::set<std::vector<uint64_t>> seen{{cut.begin(), cut.end()}};
  std::deque<std::vector<uint64_t>> queue{{cut.begin(), cut.end()}};
  int64_t steps = kNeighbourSteps;
  size_t added = 0;
  const auto visit = [&] {
    if (seen.size() > 8 * most || !seen.insert(cursor.bits()).second) return;
    queue.push_back(cursor.bits());
    if (!usable.passes(cursor.sums().compute_ns, cursor.cut_bytes()) || added >= most) return;
    sets.add(cursor.bits());
    ++added;
  };
  while (!queue.empty() && added < most && steps > 0) {
    cursor.move_to(queue.front());
    queue.pop_front();
    steps -= graph_.num_layers();
    for (int l = 0; l < graph_.num_layers() && added < most; ++l) {
      if (cursor.may_add(l)) {
        cursor.add(l);
        visit();
        cursor.remove(l);
      } else if (cursor.may_remove(l)) {
        cursor.remove(l);
        visit();
        cursor.add(l);
      }
    }
  }
}

}  // namespace penstock::planner
