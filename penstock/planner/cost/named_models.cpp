#include "penstock/planner/cost/named_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/planner/cost/cost_models.h"
#include "penstock/util/error.h"

namespace penstock::planner {

const std::vector<std::string>& cost_model_names() {
  static const std::vector<std::string> names{"penstock", "sosp2019", "released", "report2018"};
  return names;
}

std::unique_ptr<CostModel> make_cost_model(std::string_view name, const cluster::Cluster& cluster,
                                           GradientSync sync, SyncOverlap overlap,
                                           FloatType precision) {
  if (name == "penstock") return make_penstock_model(cluster, sync, overlap, precision);
  if (name == "sosp2019") return make_sosp2019_model(cluster, sync, overlap, precision);
  if (name == "released") return make_released_model(cluster, sync, overlap, precision);
  if (name == "report2018") return make_report2018_model(cluster, sync, overlap, precision);
  throw ConfigError(fmt::format("unknown cost model '{}'; expected one of {}", name,
                                fmt::join(cost_model_names(), ", ")));
}

}  // namespace penstock::planner
