// What "auto" takes: the partitioner's optimum, or what the simulator finds faster. Internal to the
// planner.
//
// The partitioner's optimum is that of the cost model, which knows no stalls: a pipeline whose
// messages or synchronisations do not fit between computations may run slower than a simpler plan,
// or than one with more micro-batches in flight.
#pragma once

#include <functional>

#include "penstock/planner/families/families.h"

namespace penstock::planner {

/// Whether "auto" may take another plan than the partitioner's.
bool may_be_replaced(const Context& context);

/// The fastest, simulated, of the optimum, of `pipeline`, serial, dp and hybrid, and of the
/// pipelines that flush; the optimum unless another one is more than 0.5 % faster. Without an
/// optimum the fastest of the others.
///
/// Where time is limited, the optimum has a part of it and the families have turns: first a short
/// one each, so that none that is quick to search is left out because another one is slow. Then
/// those that were cut short share what is left. Throws SearchEnded as `optimum`, where nothing was
/// found at all.
PlanResult fastest_of_all(const Context& context, Families& families, plan::Strategy pipeline,
                          const std::function<PlanResult()>& optimum);

}  // namespace penstock::planner
