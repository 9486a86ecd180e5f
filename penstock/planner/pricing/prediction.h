// What a priced plan will do: simulated, or estimated where it is too large for that. Internal to
// the planner.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/planner/pricing/split.h"

namespace penstock::planner {

/// Fills in throughput, latency, idle share and the stages' memory of a plan whose stages, links
/// and bottleneck are known. `cut_bytes` cross the boundaries. Schedules that have to be written
/// down to be simulated (interleaved, zero-bubble, ...) run some steps, the others of which are
/// like the last: all of these flush, so each step is. Adds a note to plans that are estimated.
/// Throws ConfigError when the kind cannot run the split.
void predict(const Context& context, const Split& split, const std::vector<int64_t>& cut_bytes,
             plan::Plan& plan);

/// The same with what each stage keeps; of a plan with teams (Stage::tensor) every member is a
/// worker.
void predict(const Context& context, const Split& split, const std::vector<StageMemory>& memories,
             plan::Plan& plan);

/// Throughput, idle share and memory alone, from two steps of a kind with a flush: to choose among
/// many.
void predict_roughly(const Context& context, const Split& split,
                     const std::vector<int64_t>& cut_bytes, plan::Plan& plan);

}  // namespace penstock::planner
