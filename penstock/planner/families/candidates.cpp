#include "penstock/planner/families/candidates.h"

#include <algorithm>
#include <map>
#include <utility>

#include "penstock/planner/families/chunks.h"
#include "penstock/planner/families/reasons.h"
#include "penstock/planner/pricing/estimate.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

using plan::Plan;
using plan::Strategy;

namespace {

std::vector<int64_t> slacks_of(const Context& context, Strategy strategy) {
  if (!traits(strategy).takes_slack) return {0};
  if (context.options.slack) return {*context.options.slack};
  std::vector<int64_t> slacks;
  for (int64_t slack = 1; slack <= kMostSlack; slack *= 2) slacks.push_back(slack);
  return slacks;
}

using Keeps = std::vector<int64_t>;  // as plan::Stage::keep, stage by stage; empty: 0

// What the workers of a split need, as far as that is known without an order.
class Needs {
 public:
  Needs(const Context& context, const Split& split, Priced priced)
      : context_(context),
        split_(split),
        memories_(stage_memories(context, split, priced.cut_bytes)),
        plan_(std::move(priced.plan)) {}

  int64_t micro_batches() const { return plan_.micro_batches; }

  // By stage, the largest number in [least, most] with which its workers have enough memory;
  // `least` where there is none.
  Keeps largest(int64_t least, int64_t most) {
    std::map<int64_t, std::vector<double>> known;
    Keeps keeps;
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      int64_t fitting = least;
      for (int64_t low = least, high = most; low <= high;) {
        const int64_t middle = low + (high - low) / 2;
        const auto [entry, is_new] = known.try_emplace(middle);
        if (is_new) entry->second = shares(Keeps(plan_.stages.size(), middle));
        if (entry->second[s] <= 1) {
          fitting = middle;
          low = middle + 1;
        } else {
          high = middle - 1;
        }
      }
      keeps.push_back(fitting);
    }
    return keeps;
  }

  // What would be the largest numbers with a little less memory: one less where it is fullest.
  Keeps with_less_memory(Keeps keeps, int64_t least) {
    const std::vector<double> full = shares(keeps);
    double fullest = 0;
    for (size_t s = 0; s < keeps.size(); ++s) {
      if (keeps[s] > least) fullest = std::max(fullest, full[s]);
    }
    for (size_t s = 0; s < keeps.size(); ++s) {
      if (keeps[s] > least && full[s] >= fullest) --keeps[s];
    }
    return keeps;
  }

 private:
  // By stage, of its workers' memory; 0 where that has no limit.
  std::vector<double> shares(const Keeps& keeps) {
    for (size_t s = 0; s < keeps.size(); ++s) plan_.stages[s].keep = keeps[s];
    estimate_memory(context_, split_, memories_, plan_);
    std::vector<double> shares;
    for (size_t s = 0; s < keeps.size(); ++s) {
      const int64_t limit = stage_limit_bytes(context_, split_, s);
      shares.push_back(limit <= 0 ? 0
                                  : static_cast<double>(plan_.stages[s].memory_bytes) /
                                        static_cast<double>(limit));
    }
    return shares;
  }

  const Context& context_;
  const Split& split_;
  std::vector<StageMemory> memories_;
  Plan plan_;
};

// Whether what each worker needs is known before there is an order: not for an upper bound.
bool knows_needs(const Split& split) {
  const bool straight = std::all_of(split.places.begin(), split.places.end(),
                                    [](const auto& place) { return place.count == 1; });
  return straight && split.worker_of_replica.empty() &&
         std::find(split.recompute.begin(), split.recompute.end(), true) == split.recompute.end();
}

// In percent; more of them where searches take little time.
std::vector<int64_t> shares_to_try(int64_t steps) {
  constexpr int64_t kFewSteps = 1'000;
  if (steps > kFewSteps) return {75, 50, 35, 25};
  std::vector<int64_t> shares;
  for (int64_t percent = 95; percent >= 25; percent -= 5) shares.push_back(percent);
  return shares;
}

struct KeepChoices {
  std::vector<Keeps> list;
  bool is_short_of_memory = false;  ///< some worker keeps less than it may otherwise
};

// Orders are not the best there are: with less memory the search may find a better one.
constexpr int kWithLessMemory = 2;

// How much is worth keeping where messages take long beside the computation: as much as under
// eager-1f1b with the most slack. Otherwise the kind's own number. (Orders are never slower where a
// worker may keep more, so numbers between the two need not be tried.)
int64_t most_useful_keep(const Plan& plan, int64_t usual) {
  const schedule::ScheduleShape shape = schedule::shape_of(plan, 1);
  int64_t compute = 0;
  int64_t message = 0;
  for (const schedule::StepCosts& costs : shape.costs) {
    compute =
        std::max(compute, saturating_add(costs.forward, saturating_add(costs.input, costs.weight)));
    message = std::max(message, costs.message);
  }
  constexpr int64_t kShort = 8;  // of the computation's time, there and back
  if (saturating_mul(2 * kShort, message) <= compute) return usual;
  const int64_t eager = 1 + (1 + kMostSlack) * (int64_t{plan.num_workers()} - 1);
  return std::max(usual, std::min(eager, plan.micro_batches));
}

// Under a memory limit also the most that each worker has the memory for, and a little less. Where
// an order may need less than what is known before it is made, some numbers between that and the
// kind's own as well.
KeepChoices keeps_of(const Context& context, const Split& split, int64_t micro_batches) {
  const plan::StrategyTraits& row = traits(split.strategy);
  if (!row.takes_keep) return {.list = {{}}};
  const int64_t asked = context.options.keep.value_or(0);
  std::vector<Keeps> keeps{asked > 0 ? Keeps(split.stages.size(), asked) : Keeps()};
  const int64_t copies = split.worker_of_replica.empty() ? 1 : split.replicas().front();
  const int64_t usual = asked > 0 ? std::max<int64_t>(asked, row.chunks)
                                  : row.most_kept({.workers = split.num_workers() / copies});
  Priced priced = price_parts(context, split, micro_batches);
  const bool one_stage_each = !row.is_chunked() && asked == 0;
  const int64_t useful = one_stage_each ? most_useful_keep(priced.plan, usual) : usual;
  if (!context.limited()) {
    if (useful > usual) keeps.emplace_back(split.stages.size(), useful);
    return {.list = std::move(keeps)};
  }
  Needs needs(context, split, std::move(priced));
  // Dualpipe-v keeps one more than the kind's own number.
  const bool one_more = row.is_chunked() && asked == 0;
  const Keeps largest = needs.largest(row.chunks, one_more ? usual + 1 : usual);
  const int64_t fewest = *std::min_element(largest.begin(), largest.end());
  const auto add = [&](Keeps more) {
    if (std::find(keeps.begin(), keeps.end(), more) == keeps.end())
      keeps.push_back(std::move(more));
  };
  if (!knows_needs(split)) {
    for (const int64_t percent :
         shares_to_try(3 * std::ssize(split.stages) * needs.micro_batches())) {
      const int64_t share = std::max<int64_t>(usual * percent / 100, row.chunks);
      if (share <= fewest || share >= usual) continue;
      Keeps between = largest;
      for (int64_t& keep : between) keep = std::max(keep, share);
      add(std::move(between));
    }
  }
  if (fewest != usual) add(largest);
  if (useful > usual) add(needs.largest(row.chunks, useful));
  const bool is_short = fewest < usual;
  Keeps less = largest;
  for (int k = 0; is_short && k < kWithLessMemory; ++k) {
    less = needs.with_less_memory(std::move(less), row.chunks);
    add(less);
  }
  return {.list = std::move(keeps), .is_short_of_memory = is_short};
}

bool same_stages(const Split& a, const Split& b) {
  return a.stages == b.stages && a.recompute == b.recompute && a.places == b.places;
}

bool is_straight_alone(const Context& context, Strategy strategy) {
  return context.options.straight || traits(strategy).one_worker_per_stage;
}

// What the memory model says of zero-bubble kinds on replicated stages is an upper bound: what fits
// under 1F1B's need may fit all the same. Kinds that may keep less are searched on the splits of
// those whose later workers keep less, and with half as many micro-batches as there are workers,
// and with one: even stages that keep little may be faster than uneven ones that keep much.
std::vector<Family> families_to_search(const Context& context, Strategy strategy, int64_t slack) {
  const plan::StrategyTraits& row = traits(strategy);
  std::vector<Family> families{{.strategy = strategy, .slack = slack}};
  if (row.takes_keep) families.front().keep = context.options.keep.value_or(0);
  if (context.limited()) {
    if (row.split_by_simulation) families.push_back({.strategy = Strategy::OneFOneBFlush});
    if (row.takes_keep) {
      families.push_back({.strategy = Strategy::ZbH2});
      const int64_t asked = context.options.keep.value_or(0);
      const int64_t half = context.workers / 2;
      if (half > 1 && (asked == 0 || half < asked))
        families.push_back({.strategy = strategy, .keep = half});
      families.push_back({.strategy = strategy, .keep = 1});
    }
  }
  if (context.counting_model && !is_straight_alone(context, strategy)) {
    // The search takes for hidden what computation could hide of the sums at best.
    families.push_back(families.front());
    families.back().counts_sums = true;
  }
  for (Family& family : families) family.policy = default_policy(family.strategy);
  return families;
}

// Whether it is new.
bool add_new(std::vector<Candidate>& list, size_t first, Candidate candidate) {
  for (size_t c = first; c < list.size(); ++c) {
    if (same_stages(list[c].split, candidate.split) && list[c].split.keep == candidate.split.keep &&
        list[c].micro_batches == candidate.micro_batches)
      return false;
  }
  list.push_back(std::move(candidate));
  return true;
}

Candidates listed_candidates(const Context& context, SplitFinder& finder, Strategy strategy,
                             double faster_than_ns) {
  const bool straight_alone = is_straight_alone(context, strategy);
  Candidates candidates;
  const int64_t cut_short_before = finder.num_cut_short();
  bool searched = false;  // the first search ends soon after the time, and has an answer
  for (const int64_t slack : slacks_of(context, strategy)) {
    const size_t first = candidates.list.size();
    for (Family family : families_to_search(context, strategy, slack)) {
      for (const bool straight : {true, false}) {
        if (!straight && straight_alone) continue;
        family.straight = straight;
        if (searched && context.time->is_over()) {
          if (candidates.list.empty()) throw OutOfTime();
          return candidates;
        }
        if (straight && faster_than_ns > 0 && finder.least_straight_ns(family) >= faster_than_ns)
          continue;
        searched = true;
        std::vector<FoundSplit> splits = finder.best_over_links(family);
        if (splits.empty()) candidates.reason = does_not_fit(context, strategy);
        for (FoundSplit& found : splits) {
          found.split.strategy = strategy;
          found.split.slack = slack;
          for (Keeps& keep : keeps_of(context, found.split, found.micro_batches).list) {
            found.split.keep = std::move(keep);
            add_new(candidates.list, first,
                    {found.split, found.micro_batches, found.optimality_gap});
          }
        }
      }
    }
  }
  if (candidates.list.empty() && finder.num_cut_short() > cut_short_before) throw OutOfTime();
  return candidates;
}

// Splits of a search, one after the other, of which none was faster: then it ends. With fewer than
// two of them, plans with more memory are slower here and there. Where no worker is short of memory
// one is enough: only the order of bottlenecks and that of simulated rates can differ.
constexpr int kMostInVain = 3;

bool have_one_limit(const Context& context) {
  return context.limited() &&
         (context.options.memory_limit_bytes || context.cluster.groups.empty());
}

// Of one search; false when `offer` was.
bool offer_lighter(const Context& context, SplitFinder& finder, Strategy strategy, Family family,
                   std::vector<Candidate>& known, const std::function<double()>& needed,
                   const std::function<bool(const Candidate&)>& offer) {
  const double samples = static_cast<double>(profile::samples_per_micro_batch(context.profile));
  auto found = finder.best(family);
  int in_vain = -1;  // the first one is known
  for (int most = 1; in_vain < most;) {
    if (!found) return true;
    found->split.strategy = strategy;
    const double before = needed();
    const Priced priced = price_parts(context, found->split, found->micro_batches);
    if (samples * 1e9 <= before * priced.least_ns) return true;
    KeepChoices keeps = keeps_of(context, found->split, found->micro_batches);
    for (Keeps& keep : keeps.list) {
      found->split.keep = std::move(keep);
      Candidate candidate{found->split, found->micro_batches, found->optimality_gap};
      if (add_new(known, 0, candidate) && !offer(candidate)) return false;
    }
    in_vain = needed() > before ? 0 : in_vain + 1;
    most = keeps.is_short_of_memory ? kMostInVain : 1;
    const int64_t micro_batches = found->micro_batches;
    family.memory_bytes = found->needed_bytes - 1;
    if (family.memory_bytes <= 0) return true;
    found = finder.best(family);
    // A shorter step, which needs less, is another plan.
    if (found && found->micro_batches != micro_batches) return true;
  }
  return true;
}

}  // namespace

void offer_lighter_candidates(const Context& context, SplitFinder& finder, Strategy strategy,
                              std::vector<Candidate> known, const std::function<double()>& needed,
                              const std::function<bool(const Candidate&)>& offer) {
  const plan::StrategyTraits& row = traits(strategy);
  if (!row.takes_keep || row.is_chunked() || !have_one_limit(context)) return;
  for (Family family : families_to_search(context, strategy, 0)) {
    for (const bool straight : {true, false}) {
      if (!straight && is_straight_alone(context, strategy)) continue;
      family.straight = straight;
      if (!offer_lighter(context, finder, strategy, family, known, needed, offer)) return;
    }
  }
}

Candidates synchronous_candidates(const Context& context, SplitFinder& finder, Strategy strategy,
                                  double faster_than) {
  const double samples = static_cast<double>(profile::samples_per_micro_batch(context.profile));
  const double faster_than_ns = faster_than > 0 ? samples * 1e9 / faster_than : 0;
  if (!traits(strategy).is_chunked())
    return listed_candidates(context, finder, strategy, faster_than_ns);
  ChunkedSplits splits = chunked_splits(context, finder, strategy, faster_than_ns);
  Candidates candidates{{}, std::move(splits.reason)};
  for (ChunkedSplit& found : splits.splits) {
    for (Keeps& keep : keeps_of(context, found.split, 0).list) {
      found.split.keep = std::move(keep);
      candidates.list.push_back({found.split, 0, found.optimality_gap});
    }
  }
  return candidates;
}

}  // namespace penstock::planner
