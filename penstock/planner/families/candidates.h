// The splits among which the simulator chooses for a synchronous pipeline. Internal to the planner.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/planner/families/split_finder.h"

namespace penstock::planner {

struct Candidate {
  Split split;
  int64_t micro_batches = 0;  ///< per step; 0: the user's, or chosen
  double optimality_gap = 0;  ///< plan::Plan::optimality_gap
};

struct Candidates {
  std::vector<Candidate> list;
  std::string reason;  ///< why there are none
};

/// Workers with one stage each: the best straight split and, unless only such splits may be, the
/// best of any replicas, where memory is limited also those of 1f1b-flush; eager-1f1b with each
/// slack of 1, 2, 4, ... up to kMostSlack that the step leaves room for. Workers with several:
/// chunked_splits(). With `faster_than`, in samples per second, some that cannot be that fast are
/// left out.
Candidates synchronous_candidates(const Context& context, SplitFinder& finder,
                                  plan::Strategy strategy, double faster_than);

/// For a kind that makes its order from costs, where all workers have the same memory limit:
/// further splits, with a longer bottleneck, that need less memory, which leaves room for more
/// micro-batches. Each search of synchronous_candidates() goes on with them, from the shortest
/// bottleneck on, as long as they can be faster than `needed()` samples per second and now and then
/// one is. Offers none twice and none of `known`; ends when `offer` returns false.
void offer_lighter_candidates(const Context& context, SplitFinder& finder, plan::Strategy strategy,
                              std::vector<Candidate> known, const std::function<double()>& needed,
                              const std::function<bool(const Candidate&)>& offer);

inline constexpr int64_t kMostSlack = 8;

}  // namespace penstock::planner
