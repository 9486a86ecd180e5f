#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "penstock/report/report.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

/// Empty when the profile does not say what the loss takes.
std::string loss_line(const profile::Profile& profile) {
  std::string text;
  for (size_t l = 0; l < profile.costs.size(); ++l) {
    const int64_t loss_ns = profile.costs[l].loss_ns;
    if (loss_ns == 0) continue;
    text += fmt::format("the loss is {} of {}\n", format_duration(loss_ns),
                        printable(profile.graph.layers().at(l).name));
  }
  return text;
}

}  // namespace

std::string profile_table(const profile::Profile& profile) {
  std::string text = fmt::format(
      "{}: {}, {}{}, {}\n\n", profile.model.empty() ? "model" : shortened(profile.model, 30),
      profile.source, profile.device.empty() ? "unknown device" : shortened(profile.device, 40),
      profile.precision == Precision::Float32 ? ""
                                              : fmt::format(", {}", to_string(profile.precision)),
      profile.batch_size > 0 ? plural(profile.batch_size, "sample") + " per micro-batch"
                             : "batch size unknown");
  // Profiles from elsewhere do not tell the two halves of backward apart.
  const bool has_parts = std::any_of(profile.costs.begin(), profile.costs.end(),
                                     [](const auto& cost) { return cost.backward_weight_ns > 0; });
  std::vector<Column> columns = {
      {"layer", Align::Left, 20}, {"kind", Align::Left, 12}, {"forward"}, {"backward"}};
  if (has_parts) columns.push_back({"for weights"});
  for (const char* title : {"share", "outputs", "weights", "kept"}) columns.push_back({title});
  Table table(columns);
  const auto add = [&](std::vector<std::string> row, int64_t weight_ns) {
    if (has_parts) row.insert(row.begin() + 4, time_or_dash(static_cast<double>(weight_ns)));
    table.add(std::move(row));
  };
  const int64_t total_ns = profile::total_compute_ns(profile);
  profile::LayerCost sum;
  int64_t output_sum = 0;
  std::vector<LayerId> layers;
  for (size_t l = 0; l < profile.costs.size(); ++l) {
    const profile::LayerCost& cost = profile.costs[l];
    int64_t outputs = 0;
    for (const int64_t bytes : cost.output_bytes) outputs = saturating_add(outputs, bytes);
    const double share =
        total_ns > 0
            ? 100.0 * static_cast<double>(saturating_add(cost.forward_ns, cost.backward_ns)) /
                  static_cast<double>(total_ns)
            : 0;
    const graph::LayerNode& layer = profile.graph.layers().at(l);
    add({layer.name, layer.kind, time_or_dash(static_cast<double>(cost.forward_ns)),
         time_or_dash(static_cast<double>(cost.backward_ns)), fmt::format("{:.1f}%", share),
         size_or_dash(outputs), size_or_dash(cost.weight_bytes), size_or_dash(cost.stash_bytes)},
        cost.backward_weight_ns);
    sum.forward_ns = saturating_add(sum.forward_ns, cost.forward_ns);
    sum.backward_ns = saturating_add(sum.backward_ns, cost.backward_ns);
    sum.backward_weight_ns = saturating_add(sum.backward_weight_ns, cost.backward_weight_ns);
    layers.push_back(LayerId{static_cast<int32_t>(l)});
    sum.stash_bytes = saturating_add(sum.stash_bytes, cost.stash_bytes);
    output_sum = saturating_add(output_sum, outputs);
  }
  sum.weight_bytes = profile::weight_bytes_of(profile, layers);
  add({"total", plural(static_cast<int64_t>(profile.costs.size()), "layer"),
       time_or_dash(static_cast<double>(sum.forward_ns)),
       time_or_dash(static_cast<double>(sum.backward_ns)), "", size_or_dash(output_sum),
       size_or_dash(sum.weight_bytes), size_or_dash(sum.stash_bytes)},
      sum.backward_weight_ns);
  return text + table.text() + loss_line(profile);
}

}  // namespace penstock::report
