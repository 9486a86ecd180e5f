// What a plan whose schedule is too large to be simulated will do, from its slowest part, its depth
// and bounds on what is in flight. Internal to the planner.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/pricing/split.h"

namespace penstock::planner {

/// Fills in the stages' memory alone, for their `keep` and the plan's micro-batches.
void estimate_memory(const Context& context, const Split& split,
                     const std::vector<StageMemory>& memories, plan::Plan& plan);

/// Fills in throughput, latency, idle share and the stages' memory of a plan whose stages, links
/// and bottleneck are known, and adds a note that says so. `memories` are those of its stages. The
/// memory of workers with several stages is an upper bound (docs/schedules.md, "Kinds"), that of
/// the others what the searches count (memory_model.h). NORM is not counted.
void estimate(const Context& context, const Split& split, const std::vector<StageMemory>& memories,
              plan::Plan& plan);

}  // namespace penstock::planner
