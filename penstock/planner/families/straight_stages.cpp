// SplitFinder's stages on equal workers: by search, or along the order of one that was found.
#include <algorithm>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/families/split_finder.h"
#include "penstock/util/check.h"

namespace penstock::planner {

const std::vector<std::vector<LayerId>>& SplitFinder::straight_stages(int stages, int workers) {
  const int level = std::max(context_.topology().level_of({0, workers}), 1);
  const auto known = straight_.find({stages, level});
  if (known != straight_.end()) return known->second;
  auto found =
      space_.complete() ? searched_stages(stages, level) : stages_along_order(stages, level);
  return straight_.emplace(std::pair{stages, level}, std::move(found)).first->second;
}

cluster::Cluster SplitFinder::equal_workers(int count, int level) const {
  cluster::Level joining = context_.cluster.levels[static_cast<size_t>(level) - 1];
  const cluster::Path& path = context_.topology().path(level);
  joining.count = count;
  joining.bandwidth_bytes_per_s = path.bandwidth_bytes_per_s;
  joining.latency_ns = path.latency_ns;
  joining.by_reference = path.by_reference;
  joining.sums_wait = path.sums_wait;
  return {.levels = {joining}};
}

std::vector<std::vector<LayerId>> SplitFinder::searched_stages(int stages, int level) {
  const cluster::Cluster equal = equal_workers(stages, level);
  const auto model = make_cost_model(context_.model->name(), equal, context_.model->sync());
  model->code_boundaries(context_.boundary(), context_.crossing());
  const auto over = [&](const CutStates& states) {
    return PartitionProblem{.states = states,
                            .model = *model,
                            .memory = {},
                            .cluster = equal,
                            .workers = stages,
                            .straight = true};
  };
  const BoundedPartition best = searched(For::FamiliesOfSeveralStages, over);
  straight_short_of_memory_ = straight_short_of_memory_ || best.out_of_memory;
  if (best.partition) return stages_of(*best.states, *best.partition);
  if (best.out_of_time) throw OutOfTime();
  // The cuts looked at were too few for so many stages.
  PENSTOCK_CHECK(!best.proven, stages);
  return stages_of_runs(LayerRuns(context_), stages, level);
}

std::vector<std::vector<LayerId>> SplitFinder::stages_along_order(int stages, int level) {
  if (!straight_runs_) {
    const int workers = std::min(context_.workers, context_.profile.graph.num_layers());
    std::vector<LayerId> order;
    for (const auto& stage :
         searched_stages(workers, std::max(context_.topology().level_of({0, workers}), 1))) {
      order.insert(order.end(), stage.begin(), stage.end());
    }
    straight_runs_.emplace(context_, std::move(order));
  }
  return stages_of_runs(*straight_runs_, stages, level);
}

std::vector<std::vector<LayerId>> SplitFinder::stages_of_runs(const LayerRuns& runs, int stages,
                                                              int level) const {
  const int layers = runs.num_layers();
  constexpr int64_t kMostSteps = 100'000'000;
  std::vector<int> ends;
  if (int64_t{layers} * layers > kMostSteps / stages) {
    ends = runs.balanced(0, stages);
  } else {
    const auto model = make_cost_model(context_.model->name(), equal_workers(stages, level),
                                       context_.model->sync());
    model->code_boundaries(context_.boundary(), context_.crossing());
    std::vector<double> cut_ns;
    for (int end = 0; end <= layers; ++end) cut_ns.push_back(model->cut_ns(runs.cut_bytes(end), 1));
    ends = runs.cheapest(stages, cut_ns);
  }
  std::vector<std::vector<LayerId>> result;
  int begin = 0;
  for (const int end : ends) {
    result.emplace_back();
    for (; begin < end; ++begin) result.back().push_back(runs.layer(begin));
    std::sort(result.back().begin(), result.back().end());
  }
  return result;
}

}  // namespace penstock::planner
