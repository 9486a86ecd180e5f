#include "penstock/planner/families/candidates.h"

#include <algorithm>

#include "penstock/planner/families/chunks.h"
#include "penstock/planner/families/reasons.h"

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

// Under a memory limit also what fits into less than the kind's own number.
std::vector<int64_t> keeps_of(const Context& context, const Split& split) {
  const plan::StrategyTraits& row = traits(split.strategy);
  if (!row.takes_keep) return {0};
  if (context.options.keep > 0) return {context.options.keep};
  std::vector<int64_t> keeps{0};
  if (!context.limited()) return keeps;
  const int64_t copies = split.worker_of_replica.empty() ? 1 : split.replicas().front();
  const int64_t usual = row.most_kept({.workers = split.num_workers() / copies});
  for (const int64_t percent : {75, 50, 35, 25}) {
    const int64_t keep = std::max<int64_t>(usual * percent / 100, row.chunks);
    if (keep < usual && keep != keeps.back()) keeps.push_back(keep);
  }
  return keeps;
}

bool same_stages(const Split& a, const Split& b) {
  return a.stages == b.stages && a.recompute == b.recompute && a.places == b.places;
}

// What the memory model says of zero-bubble kinds on replicated stages is an upper bound: what fits
// under 1F1B's need may fit all the same.
std::vector<Strategy> kinds_to_search(const Context& context, Strategy strategy) {
  const bool is_bounded = traits(strategy).split_by_simulation;
  return context.limited() && is_bounded ? std::vector<Strategy>{strategy, Strategy::OneFOneBFlush}
                                         : std::vector<Strategy>{strategy};
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
    for (const Strategy searched : kinds_to_search(context, strategy)) {
      for (const bool straight : {true, false}) {
        if (!straight && straight_alone) continue;
        const Family family{searched, default_policy(searched), straight, false,
                            searched == strategy ? slack : 0};
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
        for (const int64_t keep : keeps_of(context, found->split)) {
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
    for (const int64_t keep : keeps_of(context, found.split)) {
      found.split.keep = keep;
      candidates.list.push_back({found.split, 0, found.optimality_gap});
    }
  }
  return candidates;
}

}  // namespace penstock::planner
