// The cost models by name.
//
//   const auto model = make_cost_model("penstock", cluster, GradientSync::Ring);
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/planner/cost/cost_model.h"

namespace penstock::planner {

/// "penstock": what the runtime does. "sosp2019": SOSP 2019, section 3.1, as printed. "released":
/// what PipeDream's released optimiser computes without activation compression (activation
/// transfers are free, computation and synchronisation add up). "report2018": the 2018 technical
/// report, max of computation and 4(m-1)|w|/(mB). docs/planner.md has all four formulas. Throws
/// ConfigError listing the names otherwise.
std::unique_ptr<CostModel> make_cost_model(std::string_view name, const cluster::Cluster& cluster,
                                           GradientSync sync,
                                           SyncOverlap overlap = SyncOverlap::Hidden,
                                           FloatType precision = FloatType::Float32);
const std::vector<std::string>& cost_model_names();

}  // namespace penstock::planner
