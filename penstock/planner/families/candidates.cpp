#include "penstock/planner/families/candidates.h"

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
    if (same_stages(list[c].split, candidate.split) &&
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
        if (straight && faster_than_ns > 0 && finder.least_straight_ns(family) >= faster_than_ns)
          continue;
        auto found = finder.best(family);
        if (!found) {
          candidates.reason = does_not_fit(context, strategy);
          continue;
        }
        found->split.strategy = strategy;
        found->split.slack = slack;
        add_new(candidates.list, first,
                {std::move(found->split), found->micro_batches, found->optimality_gap});
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
  for (ChunkedSplit& found : splits.splits)
    candidates.list.push_back({std::move(found.split), 0, found.optimality_gap});
  return candidates;
}

}  // namespace penstock::planner
