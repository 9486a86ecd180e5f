#include "penstock/planner/families/candidates.h"

#include <algorithm>

#include "penstock/planner/families/chunks.h"
#include "penstock/planner/families/reasons.h"
#include "penstock/planner/pricing/estimate.h"

namespace penstock::planner {

using plan::Strategy;

namespace {

std::vector<int64_t> slacks_of(const Context& context, Strategy strategy) {
  if (!traits(strategy).takes_slack) return {0};
  if (context.options.slack >= 0) return {context.options.slack};
  std::vector<int64_t> slacks;
  for (int64_t slack = 1; slack <= kMostSlack; slack *= 2) slacks.push_back(slack);
  return slacks;
}

// The largest number in [least, most] with which all workers have enough memory, as far as that is
// known without an order; 0: none.
int64_t largest_keep(const Context& context, Split split, int64_t micro_batches, int64_t least,
                     int64_t most) {
  Priced priced = price_parts(context, split, micro_batches);
  const std::vector<StageMemory> memories = stage_memories(context, split, priced.cut_bytes);
  const auto fits = [&](int64_t keep) {
    split.keep = keep;
    estimate_memory(context, split, memories, priced.plan);
    for (size_t s = 0; s < priced.plan.stages.size(); ++s) {
      const int64_t limit = stage_limit_bytes(context, split, s);
      if (limit > 0 && priced.plan.stages[s].memory_bytes > limit) return false;
    }
    return true;
  };
  int64_t fitting = 0;
  while (least <= most) {
    const int64_t middle = least + (most - least) / 2;
    if (fits(middle)) {
      fitting = middle;
      least = middle + 1;
    } else {
      most = middle - 1;
    }
  }
  return fitting;
}

// Under a memory limit also the largest number that fits into it, and, since an order may need less
// than what is known before it is made, some between that and the kind's own number.
std::vector<int64_t> keeps_of(const Context& context, const Split& split, int64_t micro_batches) {
  const plan::StrategyTraits& row = traits(split.strategy);
  if (!row.takes_keep) return {0};
  if (context.options.keep > 0) return {context.options.keep};
  std::vector<int64_t> keeps{0};
  if (!context.limited()) return keeps;
  const int64_t copies = split.worker_of_replica.empty() ? 1 : split.replicas().front();
  const int64_t usual = row.most_kept({.workers = split.num_workers() / copies});
  const int64_t largest = largest_keep(context, split, micro_batches, row.chunks, usual);
  for (const int64_t percent : {75, 50, 35, 25}) {
    const int64_t keep = std::max<int64_t>(usual * percent / 100, row.chunks);
    if (keep > largest && keep < usual && keep != keeps.back()) keeps.push_back(keep);
  }
  if (largest > 0 && largest < usual) keeps.push_back(largest);
  return keeps;
}

bool same_stages(const Split& a, const Split& b) {
  return a.stages == b.stages && a.recompute == b.recompute && a.places == b.places;
}

// What the memory model says of zero-bubble kinds on replicated stages is an upper bound: what fits
// under 1F1B's need may fit all the same. Kinds that may keep less are searched with half as many
// micro-batches as there are workers, and with one, too: even stages that keep little may be faster
// than uneven ones that keep much.
std::vector<Family> families_to_search(const Context& context, Strategy strategy, int64_t slack) {
  const plan::StrategyTraits& row = traits(strategy);
  std::vector<Family> families{{.strategy = strategy, .slack = slack}};
  if (row.takes_keep) families.front().keep = context.options.keep;
  if (context.limited()) {
    if (row.split_by_simulation) families.push_back({.strategy = Strategy::OneFOneBFlush});
    if (row.takes_keep && context.options.keep == 0) {
      if (context.workers > 3)
        families.push_back({.strategy = strategy, .keep = context.workers / 2});
      families.push_back({.strategy = strategy, .keep = 1});
    }
  }
  for (Family& family : families) family.policy = default_policy(family.strategy);
  return families;
}

void add_new(std::vector<Candidate>& list, size_t first, Candidate candidate) {
  for (size_t c = first; c < list.size(); ++c) {
    if (same_stages(list[c].split, candidate.split) && list[c].split.keep == candidate.split.keep &&
        list[c].micro_batches == candidate.micro_batches)
      return;
  }
  list.push_back(std::move(candidate));
}

Candidates listed_candidates(const Context& context, SplitFinder& finder, Strategy strategy,
                             bool one_copy, double faster_than_ns) {
  const bool straight_alone =
      one_copy || context.options.straight || traits(strategy).one_worker_per_stage;
  Candidates candidates;
  for (const int64_t slack : slacks_of(context, strategy)) {
    const size_t first = candidates.list.size();
    for (Family family : families_to_search(context, strategy, slack)) {
      for (const bool straight : {true, false}) {
        if (!straight && straight_alone) continue;
        family.straight = straight;
        if (context.time.is_over() && !candidates.list.empty()) return candidates;
        if (straight && faster_than_ns > 0 && finder.least_straight_ns(family) >= faster_than_ns)
          continue;
        auto found = finder.best(family);
        if (!found) {
          candidates.reason = does_not_fit(context, strategy);
          continue;
        }
        found->split.strategy = strategy;
        found->split.slack = slack;
        for (const int64_t keep : keeps_of(context, found->split, found->micro_batches)) {
          found->split.keep = keep;
          add_new(candidates.list, first,
                  {found->split, found->micro_batches, found->optimality_gap});
        }
      }
    }
  }
  return candidates;
}

}  // namespace

Candidates synchronous_candidates(const Context& context, SplitFinder& finder, Strategy strategy,
                                  bool one_copy, double faster_than) {
  const double samples = static_cast<double>(profile::samples_per_micro_batch(context.profile));
  const double faster_than_ns = faster_than > 0 ? samples * 1e9 / faster_than : 0;
  if (!traits(strategy).is_chunked())
    return listed_candidates(context, finder, strategy, one_copy, faster_than_ns);
  ChunkedSplits splits = chunked_splits(context, finder, strategy,
                                        {.one_copy = one_copy, .faster_than_ns = faster_than_ns});
  Candidates candidates{{}, std::move(splits.reason)};
  for (ChunkedSplit& found : splits.splits) {
    for (const int64_t keep : keeps_of(context, found.split, 0)) {
      found.split.keep = keep;
      candidates.list.push_back({found.split, 0, found.optimality_gap});
    }
  }
  return candidates;
}

}  // namespace penstock::planner
