#include <fmt/format.h>

#include "penstock/report/report.h"
#include "penstock/report/text.h"
#include "penstock/report/text_table.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/units.h"

namespace penstock::report {

namespace {

std::string time_or_dash(int64_t ns) { return ns == 0 ? "-" : format_duration(ns); }
std::string size_or_dash(int64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }

}  // namespace

std::string profile_table(const profile::Profile& profile) {
  std::string text = fmt::format("{}: {}, {}, {}\n\n", profile.model.empty() ? "model" : shortened(profile.model, 30), profile.source,
                                 profile.device.empty() ? "unknown device" : shortened(profile.device, 40),
                                 profile.batch_size > 0 ? plural(profile.batch_size, "sample") + " per micro-batch" : "batch size unknown");
  TextTable table(
      {{"layer", Align::Left, 20}, {"kind", Align::Left, 12}, {"forward"}, {"backward"}, {"share"}, {"outputs"}, {"weights"}, {"kept"}});
  const int64_t total_ns = profile::total_compute_ns(profile);
  profile::LayerCost sum;
  int64_t output_sum = 0;
  for (size_t l = 0; l < profile.costs.size(); ++l) {
    const profile::LayerCost& cost = profile.costs[l];
    int64_t outputs = 0;
    for (const int64_t bytes : cost.output_bytes) outputs = saturating_add(outputs, bytes);
    const double share =
        total_ns > 0 ? 100.0 * static_cast<double>(saturating_add(cost.forward_ns, cost.backward_ns)) / static_cast<double>(total_ns) : 0;
    const graph::LayerNode& layer = profile.graph.layers().at(l);
    table.add({layer.name, layer.kind, time_or_dash(cost.forward_ns), time_or_dash(cost.backward_ns), fmt::format("{:.1f}%", share),
               size_or_dash(outputs), size_or_dash(cost.weight_bytes), size_or_dash(cost.stash_bytes)});
    sum.forward_ns = saturating_add(sum.forward_ns, cost.forward_ns);
    sum.backward_ns = saturating_add(sum.backward_ns, cost.backward_ns);
    sum.weight_bytes = saturating_add(sum.weight_bytes, cost.weight_bytes);
    sum.stash_bytes = saturating_add(sum.stash_bytes, cost.stash_bytes);
    output_sum = saturating_add(output_sum, outputs);
  }
  table.add({"total", plural(static_cast<int64_t>(profile.costs.size()), "layer"), time_or_dash(sum.forward_ns),
             time_or_dash(sum.backward_ns), "", size_or_dash(output_sum), size_or_dash(sum.weight_bytes), size_or_dash(sum.stash_bytes)});
  return text + table.to_string();
}

}  // namespace penstock::report
