// Plans whose replicas train by themselves for rounds of steps (GradientSync::DiLoCo).
//
//   check_rounds(plan);  // "diloco:100" for a plan "2-1": ConfigError
#pragma once

#include "penstock/plan/plan.h"

namespace penstock::plan {

/// Throws ConfigError for rounds of several steps under another method, and, under diloco, where
/// stages have different numbers of replicas, a step has fewer micro-batches than replicas, or
/// replicas are teams or share out the optimiser's state. O(stages).
void check_rounds(const Plan& plan);

}  // namespace penstock::plan
