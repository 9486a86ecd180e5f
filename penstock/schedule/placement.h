// Which worker runs what when workers hold several stages: the values of
// ScheduleShape::worker_of_replica that the generators expect. p workers per copy of the pipeline;
// replica k of every stage belongs to copy k, whose workers are k p .. (k + 1) p - 1 (but see
// bidirectional_placement).
//
//   loop, p = 4, 2 chunks        V, p = 4                  bidirectional, p = 4
//   worker 0: stages 0, 4        worker 0: stages 0, 7     worker 0: stage 0 down, stage 3 up
//   worker 1: stages 1, 5        worker 1: stages 1, 6     worker 1: stage 1 down, stage 2 up
//   worker 2: stages 2, 6        worker 2: stages 2, 5     worker 2: stage 2 down, stage 1 up
//   worker 3: stages 3, 7        worker 3: stages 3, 4     worker 3: stage 3 down, stage 0 up
#pragma once

#include <vector>

#include "penstock/plan/strategy.h"

namespace penstock::schedule {

/// Stage s on worker s mod p (Megatron-LM's interleaving, Narayanan et al., SC 2021, 2.2). Throws
/// ConfigError unless all numbers are positive and `workers` divides `stages`. Empty where each
/// worker holds one stage of one copy.
std::vector<int> loop_placement(int stages, int workers, int copies = 1);
/// Stage s on worker s, and on worker 2p - 1 - s from p on (ZB-V, Qi et al., 2024; DualPipeV).
/// `stages` must be even.
std::vector<int> v_placement(int stages, int copies = 1);
/// Two replicas of each stage: replica 0 on worker s, replica 1 on worker p - 1 - s (Chimera, Li
/// and Hoefler, SC 2021). With `copies` pairs: replicas 2k and 2k + 1 on workers k p .. `stages`
/// must be even, so that no worker holds a stage twice.
std::vector<int> bidirectional_placement(int stages, int copies = 1);

/// Any of the three: `chunks` stages per worker where the strategy lets one choose, `copies`
/// pipelines (pairs of pipelines where they run in both directions). Empty for one stage per
/// worker.
std::vector<int> placed(plan::Placement placement, int stages, int chunks, int copies);

}  // namespace penstock::schedule
