#include "penstock/planner/families/split_finder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "penstock/plan/weight_rules.h"
#include "penstock/planner/cost/named_models.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::planner {

using plan::Strategy;

namespace {

constexpr double kShareOfSearch = 0.5;
// Of the whole time, where families have turns: for searches that all of them use.
constexpr double kShareOfCommon = 0.25;
constexpr double kShareOfStages = 1.0 / 16;

constexpr int kBothDirections = 2;
constexpr int kFreeCuts = 1'000'000'000;
// A bottleneck that falls by less gains nothing.
constexpr double kLower = 0.995;

bool is_single_stage(Strategy strategy) {
  return traits(strategy).extent != plan::Extent::Pipeline;
}

// The next family down in what a worker keeps, by the memory model: fewer micro-batches in flight,
// or fewer weight versions.
std::optional<Family> lighter_than(Family family, int64_t micro_batches) {
  const plan::StrategyTraits& row = traits(family.strategy);
  if (family.keep > 0) return std::nullopt;
  if (row.takes_slack && family.slack >= 2) {
    family.slack /= 2;
    return family;
  }
  // While the step is not known, the memory model counts one round of it.
  const bool not_known = row.in_flight == plan::InFlight::All && micro_batches == 0;
  if (row.lighter == family.strategy || not_known) return std::nullopt;
  family.strategy = row.lighter;
  family.policy = default_policy(row.lighter);
  family.slack = 0;
  return family;
}

}  // namespace

SplitFinder::SplitFinder(const Context& context)
    : context_(context),
      space_(context.profile.graph, context.layers, SearchLimits::within(context.budget->bytes())),
      held_space_(context.budget.get()) {
  held_space_.set(space_.bytes());
  steps_cost_time_ = std::any_of(
      context.layers.begin(), context.layers.end(),
      [](const PlannedLayer& layer) { return layer.step_ns > 0 || layer.accumulate_ns > 0; });
}

std::optional<FoundSplit> SplitFinder::best(const Family& family) {
  if (is_single_stage(family.strategy)) return FoundSplit{single_stage(family), 0, 0};
  const int64_t usual = search_micro_batches(family);
  const auto as_split = [&](const CutStates& states, const Partition& partition, double gap,
                            int64_t micro_batches) {
    Split split = split_of(family, states, partition);
    if (family.may_be_single_stage) name_single_stage(split);
    const auto needs =
        needs_of(family, micro_batches > 0 ? micro_batches : usual, states, partition);
    return FoundSplit{std::move(split), micro_batches, gap, partition.bottleneck_ns,
                      *std::max_element(needs.begin(), needs.end())};
  };
  const auto found = [&](const BoundedPartition& best, int64_t micro_batches) {
    FoundSplit result = as_split(*best.states, *best.partition, best.gap(), micro_batches);
    for (const auto& [states, partition, on_the_way] : best.earlier) {
      // A shorter bottleneck makes no kind faster that has one micro-batch under way at a time.
      if (on_the_way && !traits(family.strategy).is_sequential()) continue;
      if (!fits(family, micro_batches > 0 ? micro_batches : usual, *states, partition)) continue;
      // One that is faster all the same is known no better than the best.
      result.earlier.push_back(as_split(*states, partition, best.gap(), micro_batches));
    }
    return result;
  };
  const auto searched_best = [&](int64_t micro_batches) -> const BoundedPartition& {
    const BoundedPartition& best = best_partition_of(family, micro_batches);
    if (best.out_of_memory) note_short_of_memory(family.strategy);
    if (best.out_of_time) ++num_cut_short_;
    return best;
  };
  if (const auto& best = searched_best(usual); best.partition) return found(best, 0);
  if (!may_shorten_steps(family)) return std::nullopt;
  for (int64_t shorter = (usual > 0 ? usual : context_.workers) / 2; shorter >= 1; shorter /= 2) {
    if (context_.time->is_over()) break;
    if (const auto& best = searched_best(shorter); best.partition) return found(best, shorter);
  }
  return std::nullopt;
}

namespace {

auto is_same_as(const FoundSplit& found) {
  return [&found](const FoundSplit& known) {
    return known.split.stages == found.split.stages && known.split.places == found.split.places &&
           known.split.recompute == found.split.recompute &&
           known.micro_batches == found.micro_batches;
  };
}

}  // namespace

std::vector<FoundSplit> SplitFinder::best_over_links(Family family) {
  std::vector<FoundSplit> splits;
  std::vector<FoundSplit> earlier;
  auto found = best(family);
  const int most = family.straight ? kBothDirections : std::max(kBothDirections, context_.workers);
  while (found) {
    const double bottleneck_ns = found->bottleneck_ns;
    std::ranges::move(found->earlier, std::back_inserter(earlier));
    found->earlier.clear();
    if (std::none_of(splits.begin(), splits.end(), is_same_as(*found)))
      splits.push_back(*std::move(found));
    const bool could_fall = slowest_cut_ns() / family.links_per_cut >= bottleneck_ns;
    family.links_per_cut *= 2;
    if (context_.model->name() != "penstock" || !could_fall || family.links_per_cut > most ||
        context_.time->is_over())
      break;
    found = best(family);
    if (found && found->bottleneck_ns >= kLower * bottleneck_ns) break;
  }
  if (context_.model->name() != "penstock") earlier.clear();
  for (FoundSplit& fewer : earlier) {
    if (std::none_of(splits.begin(), splits.end(), is_same_as(fewer)))
      splits.push_back(std::move(fewer));
  }
  return splits;
}

// Of all that the search knows.
double SplitFinder::slowest_cut_ns() const {
  const CutStates& states = *space_.states();
  int64_t most_bytes = 0;
  for (int state = 0; state < states.size(); ++state)
    most_bytes = std::max(most_bytes, states.cut_bytes(state));
  return context_.model->cut_ns(most_bytes, context_.topology().num_levels());
}

// Each search may take half of the time that is left: others follow. What the family whose turn it
// is does for others, too, is no part of its turn.
BoundedPartition SplitFinder::searched(For whom, const ProblemOver& problem_over) {
  SearchTime& whole = *context_.time;
  const bool common = whole.in_turn() && whom != For::OneFamily;
  const TimeLimit time =
      !common ? whole.share(kShareOfSearch)
              : whole.whole().share(whom == For::All ? kShareOfCommon : kShareOfStages);
  const auto begin = common ? TimeLimit::Clock::now() : TimeLimit::Clock::time_point();
  BoundedPartition best = best_partition(space_, [&](const CutStates& states) {
    PartitionProblem problem = problem_over(states);
    problem.time = time;
    problem.needs_partition = !whole.in_turn();
    problem.budget = context_.budget.get();
    return problem;
  });
  if (common) whole.lengthen_turn(TimeLimit::Clock::now() - begin);
  if (common || !whole.in_turn()) out_of_time_ = out_of_time_ || best.out_of_time;
  keep_ends_alone(best);
  return best;
}

// Of a family that has another turn.
void SplitFinder::search_again() {
  again_.clear();
  for (const auto& [key, found] : limited_) {
    if (found.out_of_time) again_.insert(key);
  }
}

// What was found is remembered, the cuts that were looked at are not.
void SplitFinder::keep_ends_alone(BoundedPartition& best) const {
  if (best.states == space_.states()) return;
  best.states =
      best.partition ? ends_alone(space_, *best.states, *best.partition) : space_.states();
}

double SplitFinder::least_straight_ns(Family family) {
  family.straight = true;
  family.links_per_cut = kFreeCuts;
  return unlimited(family, search_micro_batches(family)).lower_bound_ns;
}

std::optional<LeastSplit> SplitFinder::least(const Family& family) {
  const int64_t micro_batches = may_shorten_steps(family) ? 1 : search_micro_batches(family);
  const CutStates& states = *space_.states();
  PartitionProblem problem = problem_over(states, context_.cluster, family, micro_batches);
  problem.time = context_.time->share(1);
  problem.budget = context_.budget.get();
  const auto least = least_memory(problem);
  if (!least) return std::nullopt;
  LeastSplit result{least->bytes, split_of(family, states, least->partition),
                    needs_of(family, micro_batches, states, least->partition), space_.complete()};
  // What only whole stages know is no part of the search, so another split may need less.
  const MemoryModel memory = memory_model_of(family, micro_batches);
  int workers_from_here = least->partition.num_workers();
  for (size_t k = 0; k < result.stage_bytes.size(); ++k) {
    const int replicas = least->partition.places[k].count;
    const int64_t more =
        bytes_of_stage(result.split.stages[k],
                       stage_memory(states, k == 0 ? 0 : least->partition.ends[k - 1],
                                    least->partition.ends[k], least->partition.recompute[k]),
                       memory.in_flight(replicas, workers_from_here));
    workers_from_here -= replicas;
    if (more == 0) continue;
    result.stage_bytes[k] = saturating_add(result.stage_bytes[k], more);
    result.bytes = std::max(result.bytes, result.stage_bytes[k]);
    result.proven = false;
  }
  return result;
}

// What passes need while they run, and copies of what earlier stages save, too.
int64_t SplitFinder::bytes_of_stage(const std::vector<LayerId>& layers, const StageMemory& memory,
                                    int64_t in_flight) const {
  const int64_t received = memory.recompute ? 0 : received_stash_bytes(context_, layers);
  return saturating_add(saturating_mul(in_flight, received),
                        working_bytes(context_, layers, memory, in_flight));
}

// A flushed pipeline holds the micro-batches of one step at most, so a shorter step needs less.
bool SplitFinder::may_shorten_steps(const Family& family) const {
  const plan::StrategyTraits& row = traits(family.strategy);
  const bool is_flushed_pipeline =
      !is_single_stage(family.strategy) && !row.is_sequential() && row.flushes();
  return !context_.options.micro_batches && is_flushed_pipeline;
}

// The step that the search is told of: the user's, that of a straight plan, whose replicas are
// known, or 0, one round of each stage.
int64_t SplitFinder::search_micro_batches(const Family& family) const {
  if (context_.options.micro_batches) return *context_.options.micro_batches;
  if (family.straight && traits(family.strategy).flushes()) {
    const std::vector<int> ones(
        static_cast<size_t>(std::min(context_.workers, context_.profile.graph.num_layers())), 1);
    return chosen_micro_batches(context_, family.strategy, ones);
  }
  const int64_t most = context_.most_micro_batches();
  return most < context_.workers ? most : 0;
}

MemoryModel SplitFinder::memory_model_of(const Family& family, int64_t micro_batches) const {
  MemoryModel model = memory_model(context_, family.strategy, family.policy, micro_batches,
                                   family.slack, context_.options.gradient_groups);
  model.keep = family.keep;
  if (family.memory_bytes > 0) model.limit_bytes = family.memory_bytes;
  return model;
}

PartitionProblem SplitFinder::problem_over(const CutStates& states, const cluster::Cluster& cluster,
                                           const Family& family, int64_t micro_batches) const {
  const bool all_workers = context_.options.use_all_workers || context_.model->name() == "released";
  return {.states = states,
          .model = family.counts_sums ? *context_.counting_model : *context_.model,
          .memory = memory_model_of(family, micro_batches),
          .recompute = context_.recompute,
          .cluster = cluster,
          .workers = context_.workers,
          .straight = family.straight,
          .at_least_two_stages = !family.may_be_single_stage,
          .use_all_workers = all_workers,
          .links_per_cut = family.links_per_cut};
}

// Most plans fit by far. The best of all partitions, found once for all kinds, is the best of those
// that fit if it fits itself.
const BoundedPartition& SplitFinder::best_partition_of(const Family& family,
                                                       int64_t micro_batches) {
  const BoundedPartition& best = unlimited(family, micro_batches);
  if (!context_.limited() ||
      (best.partition && fits(family, micro_batches, *best.states, *best.partition)))
    return best;
  const BoundedPartition* before = known_limited(family, micro_batches);
  if (before != nullptr && again_.erase({family, micro_batches}) == 0) return *before;
  double at_least_ns = best.lower_bound_ns;
  if (const BoundedPartition* lighter = known_lighter(family, micro_batches)) {
    // What fits this family fits that one, and the best of the many that is among the few is the
    // best of those.
    if (lighter->proven &&
        (!lighter->partition || fits(family, micro_batches, *lighter->states, *lighter->partition)))
      return *lighter;
    at_least_ns = std::max(at_least_ns, lighter->lower_bound_ns);
  }
  double expected_ns = 0;
  const auto expect = [&](const BoundedPartition* slower) {
    if (slower == nullptr || !slower->partition) return;
    const double ns = slower->partition->bottleneck_ns;
    expected_ns = expected_ns > 0 ? std::min(expected_ns, ns) : ns;
  };
  if (family.strategy == Strategy::OneFOneBFlush) {
    Family heavier = family;
    heavier.strategy = Strategy::OneFOneB;
    heavier.policy = default_policy(heavier.strategy);
    expect(known_limited(heavier, micro_batches));
  }
  if (before != nullptr) {
    expect(before);
    at_least_ns = std::max(at_least_ns, before->lower_bound_ns);
  }
  if (const BoundedPartition* fewer = known_with_fewer_links(family, micro_batches)) {
    expect(fewer);
    at_least_ns = std::max(at_least_ns, fewer->lower_bound_ns / 2);
  }
  BoundedPartition found = searched(For::OneFamily, [&](const CutStates& states) {
    PartitionProblem problem = problem_over(states, context_.cluster, family, micro_batches);
    problem.at_least_ns = at_least_ns;
    problem.expected_ns = expected_ns;
    return problem;
  });
  const auto entry = limited_.try_emplace({family, micro_batches}).first;
  BoundedPartition& kept = entry->second;
  const bool is_worse = kept.partition && (!found.partition || found.partition->bottleneck_ns >
                                                                   kept.partition->bottleneck_ns);
  if (is_worse) return kept;
  if (kept.partition) {
    std::ranges::move(kept.earlier, std::back_inserter(found.earlier));
    found.earlier.push_back({kept.states, *std::move(kept.partition), true});
  }
  kept = std::move(found);
  return kept;
}

// With half as many links nothing is faster, and the optimum at most twice as slow.
const BoundedPartition* SplitFinder::known_with_fewer_links(Family family,
                                                            int64_t micro_batches) const {
  if (family.links_per_cut == 1) return nullptr;
  family.links_per_cut /= 2;
  if (const BoundedPartition* known = known_limited(family, micro_batches)) return known;
  const auto known = unlimited_.find(unlimited_key(family, micro_batches));
  if (known == unlimited_.end() || !known->second.partition) return nullptr;
  const BoundedPartition& best = known->second;
  return fits(family, micro_batches, *best.states, *best.partition) ? &best : nullptr;
}

// Of the families that need no more memory on any worker, the nearest whose optimum is known.
const BoundedPartition* SplitFinder::known_lighter(Family family, int64_t micro_batches) const {
  // Gradients in groups weigh more than those of kinds that do not flush.
  if (context_.options.gradient_groups && !traits(family.policy).drains) return nullptr;
  for (auto lighter = lighter_than(family, micro_batches); lighter;
       lighter = lighter_than(*lighter, micro_batches)) {
    if (const BoundedPartition* known = known_limited(*lighter, micro_batches)) return known;
  }
  return nullptr;
}

// The optimum over everything is that over two and more stages, if it has them.
const BoundedPartition* SplitFinder::known_limited(Family family, int64_t micro_batches) const {
  const auto known = limited_.find({family, micro_batches});
  if (known != limited_.end()) return &known->second;
  if (family.may_be_single_stage) return nullptr;
  family.may_be_single_stage = true;
  const auto over_all = limited_.find({family, micro_batches});
  const bool is_same = over_all != limited_.end() && over_all->second.partition &&
                       over_all->second.partition->ends.size() > 1;
  return is_same ? &over_all->second : nullptr;
}

SplitFinder::Key SplitFinder::unlimited_key(const Family& family, int64_t micro_batches) const {
  // With one worker per stage the step only enters through the time of the optimiser and of adding
  // gradients.
  const bool step_matters =
      !family.straight || (steps_cost_time_ && context_.model->name() == "penstock");
  return {family.straight, family.straight || family.may_be_single_stage,
          step_matters ? micro_batches : 1, family.counts_sums, family.links_per_cut};
}

const BoundedPartition& SplitFinder::unlimited(const Family& family, int64_t micro_batches) {
  const Key key = unlimited_key(family, micro_batches);
  if (!family.straight && !family.may_be_single_stage) {
    // The optimum over everything is that over two and more stages, if it has them.
    Family all = family;
    all.may_be_single_stage = true;
    const auto over_all = unlimited_.find(unlimited_key(all, micro_batches));
    if (over_all != unlimited_.end() && over_all->second.partition &&
        over_all->second.partition->ends.size() > 1)
      return over_all->second;
  }
  const auto known = unlimited_.find(key);
  const bool needs_another = known != unlimited_.end() && !known->second.partition &&
                             known->second.out_of_time && !context_.time->in_turn();
  if (known != unlimited_.end() && !needs_another) return known->second;
  cluster::Cluster boundless = context_.cluster;
  boundless.device.memory_bytes = 0;
  for (cluster::DeviceGroup& group : boundless.groups) group.device.memory_bytes = 0;
  Family fewer_links = family;
  fewer_links.links_per_cut /= 2;
  const auto slower = unlimited_.find(unlimited_key(fewer_links, micro_batches));
  const bool is_usual = micro_batches == search_micro_batches(family) &&
                        (family.links_per_cut == 1 || family.links_per_cut == kFreeCuts);
  BoundedPartition found =
      searched(is_usual ? For::All : For::OneFamily, [&](const CutStates& states) {
        PartitionProblem problem = problem_over(states, boundless, family, micro_batches);
        problem.memory.limit_bytes = 0;
        if (slower != unlimited_.end()) {
          problem.at_least_ns = slower->second.lower_bound_ns / 2;
          if (slower->second.partition)
            problem.expected_ns = slower->second.partition->bottleneck_ns;
        }
        if (problem.recompute == Choice::Auto) problem.recompute = Choice::Never;
        return problem;
      });
  return unlimited_.insert_or_assign(key, std::move(found)).first->second;
}

bool SplitFinder::fits(const Family& family, int64_t micro_batches, const CutStates& states,
                       const Partition& partition) const {
  const std::vector<int64_t> needs = needs_of(family, micro_batches, states, partition);
  for (size_t k = 0; k < needs.size(); ++k) {
    const int64_t limit =
        family.memory_bytes > 0 ? family.memory_bytes : context_.limit_bytes(partition.places[k]);
    if (limit > 0 && needs[k] > limit) return false;
  }
  return true;
}

std::vector<int64_t> SplitFinder::needs_of(const Family& family, int64_t micro_batches,
                                           const CutStates& states,
                                           const Partition& partition) const {
  const MemoryModel memory = memory_model_of(family, micro_batches);
  std::vector<int64_t> needs;
  int workers_from_here = partition.num_workers();
  int begin = 0;
  for (size_t k = 0; k < partition.ends.size(); ++k) {
    const int end = partition.ends[k];
    const StageMemory stage{states.between(begin, end), states.cut_bytes(begin),
                            states.cut_bytes(end), partition.recompute[k]};
    needs.push_back(memory.stage_bytes(stage, partition.places[k].count, workers_from_here));
    workers_from_here -= partition.places[k].count;
    begin = end;
  }
  return needs;
}

}  // namespace penstock::planner
