// Interleaved 1F1B (Narayanan et al., SC 2021, section 2.2), priced by formula: no generator makes its schedule yet. Internal to the
// planner.
//
// Each of p workers runs v chunks of the model, chunk j on worker j mod p, so a flush costs (p-1)(F+B)/v instead of (p-1)(F+B), for v times
// as many messages. With t the computation of the slowest worker and l that of the slowest link per micro-batch, over all its chunks, a
// step of u micro-batches takes u max(t, l) + (p-1) t / v + the messages of the first p-1 boundaries + the optimiser step.
#pragma once

#include <optional>

#include "penstock/planner/context.h"

namespace penstock::planner {

struct InterleavedResult {
  std::optional<plan::Alternative> best;  ///< without a note; over v = 2, 3 and 4
  std::string reason;                     ///< why there is none
};

/// Chunks are balanced runs of the topological order on the first workers. Memory is that of the schedule's known peak (Megatron-LM):
/// worker r holds (v-1) p + 2 (p-r-1) + 1 chunks' activations, counted as its largest. Latency is that of a whole step.
InterleavedResult interleaved(const Context& context);

}  // namespace penstock::planner
