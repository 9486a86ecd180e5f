#include <fmt/format.h>

#include <algorithm>

#include "penstock/report/report.h"
#include "penstock/report/text_table.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/units.h"

namespace penstock::report {

namespace {

constexpr size_t kWidth = 100;
constexpr size_t kLayersWidth = 26;
// Plans of thousands of stages stay readable: the first rows, then how many more there are.
constexpr size_t kMostRows = 64;

std::string time_or_dash(int64_t ns) { return ns == 0 ? "-" : format_duration(ns); }
std::string size_or_dash(int64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }

std::string plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

// Enough digits for slow and fast runs alike: 0.0123, 4.57, 12346.
std::string format_rate(double per_s) { return per_s >= 1000 ? fmt::format("{:.0f}", per_s) : fmt::format("{:.3g}", per_s); }

std::string layers_cell(const plan::Stage& stage) {
  if (stage.layers.empty()) return "-";
  if (stage.layers.size() == 1) return shortened(stage.layers.front(), kLayersWidth);
  const std::string count = fmt::format(" ({})", stage.layers.size());
  const size_t each = (kLayersWidth - 4 - count.size()) / 2;
  return fmt::format("{} .. {}{}", shortened(stage.layers.front(), each), shortened(stage.layers.back(), each), count);
}

std::string more_rows(size_t total) { return total > kMostRows ? fmt::format("  ... and {} more\n", total - kMostRows) : ""; }

std::string stage_table(const plan::Plan& plan) {
  TextTable table(
      {{"stage"}, {"layers", Align::Left}, {"workers"}, {"forward"}, {"backward"}, {"step"}, {"sync"}, {"weights"}, {"memory"}});
  for (size_t s = 0; s < std::min(plan.stages.size(), kMostRows); ++s) {
    const plan::Stage& stage = plan.stages[s];
    table.add({fmt::to_string(s), layers_cell(stage), fmt::to_string(stage.replicas), time_or_dash(stage.forward_ns),
               time_or_dash(stage.backward_ns), time_or_dash(stage.step_ns), time_or_dash(stage.sync_ns), size_or_dash(stage.weight_bytes),
               size_or_dash(stage.memory_bytes)});
  }
  return table.to_string() + more_rows(plan.stages.size());
}

std::string link_table(const plan::Plan& plan) {
  if (plan.links.empty()) return "";
  TextTable table({{"link", Align::Left}, {"each way, per micro-batch"}});
  for (size_t l = 0; l < std::min(plan.links.size(), kMostRows); ++l) {
    const plan::Link& link = plan.links[l];
    table.add({fmt::format("{} -> {}", link.from.value, link.to.value), format_bytes(link.bytes)});
  }
  return fmt::format("\n{}{}", table.to_string(), more_rows(plan.links.size()));
}

std::string alternatives_table(const plan::Plan& plan) {
  if (plan.alternatives.empty()) return "";
  TextTable table({{"strategy", Align::Left}, {"workers", Align::Left, 24}, {"samples/s"}, {"against this plan"}});
  for (const plan::Alternative& alternative : plan.alternatives) {
    const double ratio = plan.throughput_samples_per_s > 0 ? alternative.throughput_samples_per_s / plan.throughput_samples_per_s : 0;
    const bool chosen = alternative.strategy == plan.strategy && alternative.config == plan.config();
    table.add({alternative.strategy, alternative.config, format_rate(alternative.throughput_samples_per_s),
               chosen ? "chosen" : fmt::format("{:.2f}x", ratio)});
  }
  return fmt::format("\n{}", table.to_string());
}

}  // namespace

std::string plan_table(const plan::Plan& plan) {
  std::string text =
      fmt::format("{}: {} {} on {}, weights {}, cost model {}\n\n", plan.model.empty() ? "model" : shortened(plan.model, 20), plan.strategy,
                  shortened(plan.config(), 16), plural(plan.num_workers(), "worker"), plan.weights, plan.cost_model);
  text += stage_table(plan);
  text += link_table(plan);
  text += fmt::format("\n{} of {} per step, {} in flight\n", plural(plan.micro_batches, "micro-batch"),
                      plural(plan.micro_batch_size, "sample"), plan.depth);
  text += fmt::format("slowest part {} per micro-batch, predicted {} samples/s\n", format_duration(plan.bottleneck_ns),
                      format_rate(plan.throughput_samples_per_s));
  text += alternatives_table(plan);
  if (!plan.notes.empty()) text += "\nnotes\n";
  for (const std::string& note : plan.notes) text += wrapped_item(note, kWidth);
  return text;
}

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
