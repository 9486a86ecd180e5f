#include "penstock/planner/partition/bounded_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "penstock/planner/partition/cut_bounds.h"
#include "penstock/planner/partition/partition_search.h"
#include "penstock/util/check.h"

namespace penstock::planner {

namespace {

// Halvings of the range in which the largest time is sought that the depths of usable cuts rule
// out, and the share of it that is not worth another.
constexpr int kHalvings = 8;
constexpr double kNarrow = 5e-4;

// Beyond this, states^2 / 2 * workers, a table over states and workers takes too long
// (make_search).
constexpr double kMostTablePlaces = 2e7;
constexpr double kMostTableCells = 2e6;

// Where time is limited, selections of few cuts (kFewCuts) are searched first, so that there is a
// partition when it runs out; the fewest within a time of their own.
constexpr std::chrono::milliseconds kLastResort{500};

PartitionProblem with_limits(PartitionProblem problem) {
  if (problem.workers == 1 || problem.states.num_layers() == 1) problem.at_least_two_stages = false;
  problem.memory.max_workers = problem.workers;
  return problem;
}

class BoundedSearch {
 public:
  BoundedSearch(const CutSpace& space, const ProblemOver& problem_over)
      : space_(space),
        problem_over_(problem_over),
        problem_(with_limits(problem_over(*space.states()))),
        bounds_(problem_, space.layers()) {
    const SearchLimits& limits = space.limits();
    // A search over labels per level takes longer for each further one.
    const int extra_levels = std::min(bounds_.num_levels(), 4) - 1;
    const int64_t divisor = int64_t{1} << extra_levels;
    most_selected_ = std::min(std::max(limits.selected_states, fewest_selected()), most_states());
    rounds_ = std::max(limits.rounds - extra_levels, std::min(limits.rounds, 1));
    most_exact_ = std::min(limits.exact_states / divisor, most_states());
    if (problem_.budget != nullptr) refusals_before_ = problem_.budget->refusals();
  }

  BoundedPartition run() {
    BoundedPartition found = searched();
    const bool had_fewer_cuts = space_.limits().are_lowered && !space_.complete();
    found.out_of_memory = (was_refused_memory() || had_fewer_cuts) && !found.proven;
    return found;
  }

 private:
  BoundedPartition searched() {
    best_.states = space_.states();
    try {
      if (needs_another_selection()) best_.states = states_of(space_.selection(most_selected_));
    } catch (const OutOfMemory&) {  // those that the space holds must do
    }
    best_.lower_bound_ns = std::max(bounds_.least_bottleneck_ns(), problem_.at_least_ns);
    if (!search_selection()) return ended();
    if (is_complete()) {
      if (best_.partition && best_.partition->open_ns > 0) return ended();
      return proven();
    }
    try {
      return improved();
    } catch (const SearchEnded&) {
      return ended();
    }
  }

  bool was_refused_memory() const {
    return problem_.budget != nullptr && problem_.budget->refusals() > refusals_before_;
  }

  // Counted as long as they are in use.
  std::shared_ptr<const CutStates> states_of(const LayerSets& sets) const {
    struct Counted {
      explicit Counted(MemoryBudget* budget) : held(budget) {}
      HeldBytes held;
      std::optional<CutStates> states = {};
    };
    const auto counted = std::make_shared<Counted>(problem_.budget);
    counted->held.set(
        CutStates::bytes_of(static_cast<int64_t>(sets.size()) + 2, space_.graph().num_layers()));
    counted->states.emplace(space_.graph(), space_.layers(), sets);
    return {counted, &*counted->states};
  }

  // On unequal devices time grows with the workers too.
  int64_t most_states() const {
    const bool straight = problem_.straight && !single_layers(problem_);
    if (straight || problem_.cluster.uniform()) return INT64_MAX;
    return static_cast<int64_t>(std::min(std::sqrt(2 * kMostTablePlaces / problem_.workers),
                                         kMostTableCells / problem_.workers));
  }

  // Half of a selection are cuts of one order: with so many of them a straight partition exists.
  int64_t fewest_selected() const {
    if (!problem_.straight) return 0;
    return 2 * (int64_t{std::min(problem_.workers, problem_.states.num_layers())} + 1);
  }

  bool needs_another_selection() const {
    const int64_t size = best_.states->size();
    return size > most_states() || (!space_.complete() && size < fewest_selected());
  }

  bool is_complete() const { return space_.complete() && best_.states == space_.states(); }

  // From the best partition over a selection of cuts on.
  BoundedPartition improved() {
    if (!best_.partition) return without_partition();
    raise_bound();
    for (int round = 0;; ++round) {
      if (at_bound() || search_usable(best_.partition->bottleneck_ns)) return proven();
      if (round == rounds_ || !search_around()) break;
    }
    raise_bound();  // from a partition that the selections may have improved
    return std::move(best_);
  }

  // One of the search's limits was met.
  BoundedPartition ended() {
    best_.out_of_time = !was_refused_memory() || problem_.time.is_over();
    if (is_complete() && best_.partition) {
      best_.lower_bound_ns =
          std::max(best_.lower_bound_ns, best_.partition->bottleneck_ns - best_.partition->open_ns);
    }
    return std::move(best_);
  }

  std::optional<Partition> over(const CutStates& states) {
    return over(states, problem_over_(states));
  }

  // What is found on the way is remembered, also where the search ends early.
  std::optional<Partition> over(const CutStates& states, PartitionProblem problem) {
    std::vector<Partition> earlier;
    problem.earlier = &earlier;
    const auto remember_all = [&] {
      for (Partition& partition : earlier) remember(states, std::move(partition), true);
    };
    try {
      auto found = best_partition(problem);
      remember_all();
      return found;
    } catch (const SearchEnded&) {
      remember_all();
      throw;
    }
  }

  void remember(const CutStates& states, Partition partition, bool on_the_way) {
    auto ends = ends_alone(space_, states, partition);
    best_.earlier.push_back({std::move(ends), std::move(partition), on_the_way});
  }

  // Over best_.states; whether there was time for it. A search over few cuts takes milliseconds,
  // and its partition is better than none.
  bool search_selection() {
    const std::shared_ptr<const CutStates> states = std::move(best_.states);
    const bool fewer_first = problem_.time.exists() || space_.limits().are_lowered ||
                             problem_.model.name() == "penstock";
    if (fewer_first) search_fewer(*states);
    try {
      auto found = over(*states);
      const bool ended_early = found && found->open_ns > 0;
      if (!is_as_good(found, ended_early)) {
        remember_best();
        best_.states = states;
        best_.partition = std::move(found);
        return true;
      }
      return !ended_early;
    } catch (const SearchEnded&) {
      if (!fewer_first) search_fewer(*states);
      if (!best_.states) best_.states = states;
      return false;
    }
  }

  // Whether the best partition over fewer cuts is better than this one over more, or no worse than
  // one that may not be the best over these. A selection need not hold the cuts of a smaller one.
  bool is_as_good(const std::optional<Partition>& found, bool ended_early) const {
    if (!best_.partition || !found) return best_.partition.has_value();
    const double best_ns = best_.partition->bottleneck_ns;
    return best_ns < found->bottleneck_ns || (ended_early && best_ns == found->bottleneck_ns);
  }

  // Selections of few cuts take little time, and little memory.
  void search_fewer(const CutStates& states) {
    for (const int64_t cuts : kFewCuts) {
      if (states.size() <= cuts) break;
      search_few(cuts);
    }
  }

  // The fewest have a little time of their own, so that there is an answer in any case.
  void search_few(int64_t cuts) {
    if (problem_.time.is_over() && best_.partition) return;
    try {
      auto states = states_of(space_.selection(cuts));
      PartitionProblem problem = problem_over_(*states);
      if (cuts == kFewCuts.front() && problem.time.exists() && problem.needs_partition)
        problem.time = TimeLimit(kLastResort);
      auto found = over(*states, std::move(problem));
      if (!found || (best_.partition && best_.partition->bottleneck_ns <= found->bottleneck_ns))
        return;
      found->open_ns = 0;  // of these cuts alone
      remember_best();
      best_.states = std::move(states);
      best_.partition = std::move(found);
    } catch (const SearchEnded&) {
    }
  }

  // The best partition so far, before a better one replaces it.
  void remember_best() {
    if (best_.partition) remember(*best_.states, *best_.partition, false);
  }

  BoundedPartition proven() {
    best_.proven = true;
    if (best_.partition) best_.lower_bound_ns = best_.partition->bottleneck_ns;
    return std::move(best_);
  }

  // Nothing fits with the selected cuts; others may do better.
  BoundedPartition without_partition() {
    best_.proven = bounds_.cannot_fit() || search_usable(kNoTimeLimit);
    return best_.proven ? proven() : std::move(best_);
  }

  bool at_bound() const { return best_.partition->bottleneck_ns <= best_.lower_bound_ns; }

  bool take_if_better(std::shared_ptr<const CutStates> states, std::optional<Partition> found) {
    if (!found || found->bottleneck_ns >= best_.partition->bottleneck_ns) return false;
    if (best_.partition) remember(*best_.states, *best_.partition, true);
    best_.states = std::move(states);
    best_.partition = std::move(found);
    return true;
  }

  // The conditions on cuts within the time, nothing when they leave no partition.
  std::optional<UsableCuts> usable_within(double limit_ns) const {
    UsableCuts usable = bounds_.within(limit_ns);
    if (!bounds_.narrow(usable, limit_ns, space_.depth_cells(usable), space_.occupied(usable)))
      return std::nullopt;
    return usable;
  }

  // To the largest time found for which the depths of usable cuts alone leave no partition.
  void raise_bound() {
    double possible_ns = best_.partition->bottleneck_ns;
    for (int k = 0; k < kHalvings && possible_ns - best_.lower_bound_ns > kNarrow * possible_ns;
         ++k) {
      problem_.time.check();
      const double middle_ns = best_.lower_bound_ns + (possible_ns - best_.lower_bound_ns) / 2;
      (usable_within(middle_ns) ? possible_ns : best_.lower_bound_ns) = middle_ns;
    }
  }

  // Whether a selection near the best partition has a better one.
  bool search_around() {
    problem_.time.check();
    const auto usable = usable_within(best_.partition->bottleneck_ns);
    PENSTOCK_CHECK(usable, best_.partition->bottleneck_ns);
    auto states =
        states_of(space_.around(*best_.states, best_.partition->ends, *usable, most_selected_));
    auto found = over(*states);
    return take_if_better(std::move(states), std::move(found));
  }

  // Searches over every cut that a partition within the time can have, if these can be listed; the
  // best so far must not be better.
  bool search_usable(double limit_ns) {
    problem_.time.check();
    const auto usable = usable_within(limit_ns);
    PENSTOCK_CHECK(usable || !best_.partition, limit_ns);
    if (!usable) return true;
    const auto sets = space_.list(*usable, most_exact_);
    if (!sets) return false;
    auto states = states_of(*sets);
    auto found = over(*states);
    if (found && found->open_ns > 0) {
      take_if_better(std::move(states), std::move(found));
      throw SearchEnded("a part of the search ended early");
    }
    // The cuts of a partition within the time are among those that it can have.
    PENSTOCK_CHECK(found || !best_.partition, limit_ns);
    if (best_.partition) remember(*best_.states, *best_.partition, true);
    best_.states = std::move(states);
    best_.partition = std::move(found);
    return true;
  }

  const CutSpace& space_;
  const ProblemOver& problem_over_;
  const PartitionProblem problem_;
  const CutBounds bounds_;
  int rounds_ = 0;
  int64_t most_selected_ = 0;
  int64_t most_exact_ = 0;
  int64_t refusals_before_ = 0;
  BoundedPartition best_;
};

}  // namespace

std::shared_ptr<const CutStates> ends_alone(const CutSpace& space, const CutStates& states,
                                            Partition& partition) {
  LayerSets sets(space.graph().num_layers());
  for (const int end : partition.ends) sets.add(states.layers(end));
  // From the first on each holds the one before: they keep their order. State 0 is the empty set.
  int number = 0;
  for (int& end : partition.ends) end = ++number;
  return space.states_of(sets);
}

double BoundedPartition::gap() const {
  if (!partition || proven || partition->bottleneck_ns <= lower_bound_ns) return 0;
  return 1 - lower_bound_ns / partition->bottleneck_ns;
}

BoundedPartition best_partition(const CutSpace& space, const ProblemOver& problem_over) {
  return BoundedSearch(space, problem_over).run();
}

}  // namespace penstock::planner
