#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "penstock/plan/boundaries.h"
#include "penstock/plan/interval.h"
#include "penstock/report/plan/family_rows.h"
#include "penstock/report/plan/plan_tables.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/report/report.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

constexpr size_t kLeastLayersWidth = 20;

// The table and how many rows it leaves out.
std::string with_more(const Table& table, size_t total) {
  const std::string more = more_rows(total, TableSize{}.rows);
  return table.text() + (more.empty() ? "" : fmt::format("  {}\n", more));
}

std::string items(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += wrapped_item(line, kTextWidth);
  return text;
}

std::string boundaries_note(const plan::Plan& plan) {
  const std::string codings = plan::boundaries_text(plan);
  return codings.empty() ? codings : fmt::format(", messages in {}", codings);
}

std::string heading(const PlanView& view) {
  const plan::Plan& plan = view.plan;
  const int used = plan.num_workers();
  const int all = view.topology ? view.topology->num_workers() : used;
  return fmt::format(
      "{}: {} {} on {}, weights {}{}, cost model {}\n",
      plan.model.empty() ? "model" : shortened(plan.model, 20), to_string(plan.strategy),
      short_config(plan.config(), 24),
      used < all ? fmt::format("{} of {} workers", used, all) : plural(used, "worker"),
      plan.weights_text() +
          (plan.precision == Precision::Float32
               ? ""
               : fmt::format(", in {}", to_string(plan.precision))) +
          boundaries_note(plan),
      std::any_of(plan.stages.begin(), plan.stages.end(),
                  [](const plan::Stage& stage) { return stage.replicas > 1; })
          ? ", gradients by " + view.gradient_method()
          : "",
      shortened(plan.explanation.cost_model, 20));
}

/// How often a micro-batch ends, simulated, where that is not what the slowest part says. Replicas
/// that are behind different links share the messages out; stalls make it rarer.
std::string reached_text(const PlanView& view) {
  constexpr double kEqualTimes = 0.02;
  const plan::Plan& plan = view.plan;
  if (!(plan.prediction.throughput_samples_per_s > 0)) return "";
  const double slowest_ns = view.bottleneck.time_ns;
  const double reached_ns =
      static_cast<double>(plan.micro_batch_size) * 1e9 / plan.prediction.throughput_samples_per_s;
  if (std::fabs(reached_ns - slowest_ns) <= kEqualTimes * slowest_ns) return "";
  const bool is_shared = view.bottleneck.kind == Bottleneck::Kind::Link && reached_ns < slowest_ns;
  return fmt::format("{}\n  simulated, a micro-batch ends every {}",
                     is_shared ? ", if one link carried all of it" : "", duration_text(reached_ns));
}

std::string slowest_part(const PlanView& view) {
  if (!(view.bottleneck.time_ns > 0)) return "";
  const plan::Plan& plan = view.plan;
  std::string text = fmt::format("slowest part: {}, {} per micro-batch{}", view.bottleneck_name(),
                                 duration_text(view.bottleneck.time_ns), reached_text(view));
  const auto priced = static_cast<double>(plan.prediction.bottleneck_ns);
  if (priced > 0 && std::fabs(priced - view.bottleneck.time_ns) > 0.02 * view.bottleneck.time_ns) {
    text += fmt::format(" as it runs\n  cost model {} prices the slowest part at {}",
                        shortened(plan.explanation.cost_model, 20), duration_text(priced));
  }
  return text + '\n';
}

std::string totals(const PlanView& view) {
  const plan::Plan& plan = view.plan;
  std::string text = fmt::format("{} of {} per step, {} in flight per worker of stage 0\n",
                                 plural(plan.micro_batches, "micro-batch"),
                                 plural(plan.micro_batch_size, "sample"), plan.depth);
  const bool has_interval = plan.prediction.throughput_high_samples_per_s > 0;
  text +=
      fmt::format("predicted {} samples/s", format_rate(plan.prediction.throughput_samples_per_s));
  if (has_interval) {
    text += ", " + plan::Interval{plan.prediction.throughput_low_samples_per_s,
                                  plan.prediction.throughput_high_samples_per_s}
                       .text();
  }
  if (plan.prediction.latency_ns > 0)
    text += fmt::format(", {} from a sample's first forward to its step",
                        format_duration(plan.prediction.latency_ns));
  if (plan.prediction.idle_share > 0)
    text += fmt::format(", workers idle {} of the time", percent_text(plan.prediction.idle_share));
  text += '\n';
  text += slowest_part(view);
  if (view.least_memory_limit_bytes) {
    text +=
        fmt::format("memory limit {} per worker\n", format_bytes(*view.least_memory_limit_bytes));
  }
  const size_t levels =
      std::min(plan.prediction.bytes_per_sample.size(), plan.cluster.levels.size());
  for (size_t level = 0; level < levels; ++level) {
    text += fmt::format("{}{} {}", level == 0 ? "bytes per sample: " : ", ",
                        view.level_name(static_cast<int>(level) + 1),
                        bytes_text(plan.prediction.bytes_per_sample[level]));
  }
  if (levels > 0) text += '\n';
  if (const std::string taken = view.processor_text(); !taken.empty()) text += taken + '\n';
  if (plan.explanation.optimality_gap > 0) {
    text += fmt::format(
        "optimality gap: the slowest part may be up to {} above that of the best plan\n",
        percent_text(plan.explanation.optimality_gap));
  }
  return text;
}

std::string families(const plan::Plan& plan) {
  if (plan.explanation.alternatives.empty()) return "";
  Table table({{"strategy", Align::Left, 16},
               {"workers", Align::Left, 24},
               {"samples/s"},
               {"against this plan"}});
  for (const plan::Alternative& alternative : plan.explanation.alternatives) {
    const bool possible = alternative.throughput_samples_per_s > 0;
    table.add({std::string(to_string(alternative.strategy)), short_config(alternative.config, 24),
               possible ? format_rate(alternative.throughput_samples_per_s) : "-",
               is_chosen(plan, alternative) ? "chosen"
               : possible                   ? ratio_text(alternative.throughput_samples_per_s,
                                                         plan.prediction.throughput_samples_per_s)
                                            : "no such plan"});
  }
  return fmt::format("\n{}", table.text());
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    widest = std::max(widest, display_width(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return widest;
}

}  // namespace

std::string plan_table(const plan::Plan& plan, std::optional<int64_t> memory_limit_bytes) {
  const PlanView view(plan, memory_limit_bytes);
  TableSize size;
  Table stages = stage_table(view, size);
  // Layer names are shortened when the other columns need the room.
  if (const size_t excess = widest_line(stages.text()); excess > kTextWidth) {
    size.layers_width = std::max(
        kLeastLayersWidth, size.layers_width - std::min(size.layers_width, excess - kTextWidth));
    stages = stage_table(view, size);
  }
  std::string text = heading(view) + '\n' + with_more(stages, view.stages.size());
  if (!view.workers.empty())
    text += '\n' + with_more(worker_table(view, size), view.workers.size());
  if (!view.links.empty()) text += '\n' + with_more(link_table(view, size), view.links.size());
  text += '\n' + totals(view) + families(plan);
  return text + (plan.explanation.notes.empty() ? "" : "\nnotes\n" + items(plan.explanation.notes));
}

std::string compare_table(const plan::Plan& plan) {
  const PlanView view(plan);
  return family_table(view).text() + "\n" + items(family_reasons(view));
}

std::string what_if_table(const std::vector<plan::WhatIfResult>& changes) {
  if (changes.empty()) return "";
  return change_table(changes).text() + items(change_reasons(changes));
}

}  // namespace penstock::report
