#include "penstock/planner/families/hybrid.h"

#include <algorithm>

#include "penstock/planner/families/layer_runs.h"

namespace penstock::planner {

using cluster::WorkerRange;

namespace {

constexpr int kMostForTheRest = 4;

struct HybridCandidate {
  double micro_batch_ns = 0;
  int cut = 0;   ///< layers of stage 0
  int rest = 1;  ///< workers after it
};

// One step of r micro-batches: all replicas compute at once, the rest takes one after another, then
// gradients are added.
double step_ns(const Context& context, const LayerRuns& runs, int cut, const std::vector<int>& ends,
               int replicas) {
  const auto rest = static_cast<int>(ends.size());
  const WorkerRange front{0, replicas};
  const auto scaled = [&](int begin, int end, const WorkerRange& place) {
    return static_cast<double>(runs.compute_ns(begin, end)) / context.speed(place);
  };
  double slowest_ns = 0;
  double others_ns = 0;
  int begin = cut;
  for (int k = 0; k < rest; ++k) {
    const double ns = scaled(begin, ends[static_cast<size_t>(k)], {replicas + k, 1});
    slowest_ns = std::max(slowest_ns, ns);
    others_ns += ns;
    begin = ends[static_cast<size_t>(k)];
  }
  others_ns -= slowest_ns;
  const double cut_ns =
      context.model->cut_ns(runs.cut_bytes(cut), context.topology().level_between(0, replicas));
  const auto front_ns = static_cast<int64_t>(scaled(0, cut, front));
  const double wait_ns = context.model->least_sum_ns(
      {.weight_bytes = runs.weight_bytes(0, cut), .overlap_ns = front_ns + runs.step_ns(0, cut)},
      replicas, context.topology().level_of(front));
  return scaled(0, cut, front) + wait_ns + static_cast<double>(runs.step_ns(0, cut)) + cut_ns +
         others_ns + replicas * std::max(slowest_ns, cut_ns);
}

Split split_of(const Context& context, const LayerRuns& runs, const HybridCandidate& candidate,
               int replicas) {
  Split split{plan::Strategy::OneFOneBFlush, plan::WeightPolicy::Flush, {}, {}, {}};
  std::vector<int> ends = runs.balanced(candidate.cut, candidate.rest);
  ends.insert(ends.begin(), candidate.cut);
  int begin = 0;
  int worker = 0;
  for (const int end : ends) {
    split.stages.emplace_back();
    for (int l = begin; l < end; ++l) split.stages.back().push_back(LayerId{l});
    split.places.push_back({worker, begin == 0 ? replicas : 1});
    split.recompute.push_back(context.recompute == Choice::Always);
    worker += split.places.back().count;
    begin = end;
  }
  return split;
}

}  // namespace

std::vector<Split> hybrid_splits(const Context& context, size_t most) {
  const LayerRuns runs(context);
  const int64_t most_replicas = std::min<int64_t>(context.workers, context.most_micro_batches());
  const auto replicas_beside = [&](int rest) {
    return static_cast<int>(std::min<int64_t>(most_replicas, context.workers - rest));
  };
  std::vector<HybridCandidate> candidates;
  for (int rest = 1; rest <= std::min(kMostForTheRest, context.workers - 1); ++rest) {
    const int replicas = replicas_beside(rest);
    for (int cut = 1; cut + rest <= runs.num_layers(); ++cut) {
      candidates.push_back(
          {step_ns(context, runs, cut, runs.balanced(cut, rest), replicas) / replicas, cut, rest});
    }
  }
  const size_t kept = std::min(most, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                    candidates.end(), [](const HybridCandidate& a, const HybridCandidate& b) {
                      return a.micro_batch_ns < b.micro_batch_ns;
                    });
  std::vector<Split> splits;
  for (size_t i = 0; i < kept; ++i)
    splits.push_back(split_of(context, runs, candidates[i], replicas_beside(candidates[i].rest)));
  return splits;
}

}  // namespace penstock::planner
