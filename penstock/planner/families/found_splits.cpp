// SplitFinder's partitions as splits of layers.
#include "penstock/planner/families/split_finder.h"

namespace penstock::planner {

using plan::Strategy;

namespace {

// The first worker of the fastest device, or of the largest one where there is a memory limit that
// not all can keep.
int best_single_worker(const Context& context, int64_t needed_bytes) {
  const auto rank = [&](int worker) {
    const cluster::WorkerRange place{worker, 1};
    const int64_t limit = context.limit_bytes(place);
    return std::pair(limit == 0 || limit >= needed_bytes, context.speed(place));
  };
  int best = 0;
  const auto offer = [&](int worker) {
    if (worker < context.workers && rank(worker) > rank(best)) best = worker;
  };
  // Devices only change where a group begins or ends.
  for (const cluster::DeviceGroup& group : context.cluster.groups) {
    offer(group.first);
    offer(group.first + group.count);
  }
  return best;
}

}  // namespace

void name_single_stage(Split& split) {
  if (split.stages.size() > 1 || split.policy != default_policy(split.strategy)) return;
  split.strategy = split.places[0].count == 1 ? Strategy::Serial : Strategy::DataParallel;
  split.policy = default_policy(split.strategy);
}

std::vector<std::vector<LayerId>> SplitFinder::stages_of(const CutStates& states,
                                                         const Partition& partition) const {
  std::vector<std::vector<LayerId>> stages;
  int begin = 0;
  for (const int end : partition.ends) {
    stages.emplace_back();
    for (int l = 0; l < context_.profile.graph.num_layers(); ++l) {
      if (states.contains(end, LayerId{l}) && !states.contains(begin, LayerId{l}))
        stages.back().push_back(LayerId{l});
    }
    begin = end;
  }
  return stages;
}

Split SplitFinder::split_of(const Family& family, const CutStates& states,
                            const Partition& partition) const {
  Split split{family.strategy, family.policy, stages_of(states, partition), partition.places,
              partition.recompute};
  split.slack = family.slack;
  split.keep.assign(split.stages.size(), family.keep);
  return split;
}

Split SplitFinder::single_stage(const Family& family) const {
  Split split{family.strategy,
              family.policy,
              {std::vector<LayerId>(context_.layers.size())},
              {{0, context_.workers}},
              {false}};
  for (size_t l = 0; l < context_.layers.size(); ++l)
    split.stages[0][l] = LayerId{static_cast<int32_t>(l)};
  if (family.strategy == Strategy::Serial) {
    const MemoryModel memory = memory_model_of(family, 1);
    const StageMemory stage = stage_memory(context_, split.stages[0], 0, 0, false);
    split.places[0] = {best_single_worker(context_, memory.stage_bytes(stage, 1, 1)), 1};
  }
  return split;
}

}  // namespace penstock::planner
