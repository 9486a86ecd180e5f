#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "penstock/plan/interval.h"
#include "penstock/report/plan/family_rows.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/report/text/text_table.h"
#include "penstock/util/format_rate.h"
#include "penstock/util/printable.h"
#include "penstock/util/units.h"

namespace penstock::report {

namespace {

constexpr size_t kTableWidth = 116;
constexpr size_t kLayersWidth = 40;
constexpr size_t kLeastLayersWidth = 20;
// Plans of thousands of stages stay readable: the first rows, the slowest, and how many more there
// are.
constexpr size_t kMostTableRows = 64;

std::string table_time(double ns) { return ns > 0 ? duration_text(ns) : "-"; }

// The rows to show of `total`: the first ones and, when it is not among them, the slowest.
std::vector<size_t> rows_shown(size_t total, size_t slowest) {
  std::vector<size_t> rows;
  for (size_t k = 0; k < std::min(total, kMostTableRows); ++k) rows.push_back(k);
  if (slowest < total && slowest >= kMostTableRows) rows.back() = slowest;
  return rows;
}

std::string more_rows(size_t total) {
  return total > kMostTableRows ? fmt::format("  ... and {} more\n", total - kMostTableRows) : "";
}

std::string mark(const PlanView& view, size_t s) {
  const bool slowest = view.bottleneck.is_stage(s);
  const plan::Stage& stage = view.plan.stages[s];
  std::string text = stage.recompute ? "recomputes" : "";
  const auto add = [&text](const char* more) {
    text += (text.empty() ? "" : ", ") + std::string(more);
  };
  if (stage.offload) add("offloads");
  if (stage.shard_optimizer) add("shards state");
  if (slowest) add("slowest");
  return text;
}

std::string memory_share(const plan::Stage& stage, int64_t limit_bytes) {
  if (limit_bytes <= 0 || stage.memory_bytes <= 0) return "-";
  return percent_text(static_cast<double>(stage.memory_bytes) / static_cast<double>(limit_bytes));
}

// "15 (0-14)": how many, and their numbers in the cluster.
std::string workers_cell(const plan::Stage& stage, const StageView& seen) {
  return seen.workers == "-" ? fmt::to_string(stage.replicas)
                             : fmt::format("{} ({})", stage.replicas, seen.workers);
}

std::string stage_table(const PlanView& view, size_t layers_width) {
  const bool placed = std::any_of(view.stages.begin(), view.stages.end(),
                                  [](const StageView& stage) { return !stage.where.empty(); });
  std::vector<Column> columns = {{"stage"}, {"layers", Align::Left, layers_width}, {"workers"}};
  if (placed) columns.push_back({"where", Align::Left, 24});
  for (const std::string_view title : {"compute", "sync", "time", "memory", "of limit"})
    columns.push_back({std::string(title)});
  columns.push_back({"", Align::Left});
  TextTable table(std::move(columns));
  const size_t slowest =
      view.bottleneck.kind == Bottleneck::Kind::Stage ? view.bottleneck.index : 0;
  for (const size_t s : rows_shown(view.stages.size(), slowest)) {
    const plan::Stage& stage = view.plan.stages[s];
    const StageView& seen = view.stages[s];
    std::vector<std::string> cells = {fmt::to_string(s), layers_text(stage.layers, layers_width),
                                      workers_cell(stage, seen)};
    if (placed) cells.push_back(seen.where);
    for (std::string& cell : std::vector<std::string>{
             table_time(static_cast<double>(stage.work_ns())),
             table_time(static_cast<double>(stage.sync_ns)), table_time(seen.time_ns()),
             stage.memory_bytes == 0 ? "-" : format_bytes(stage.memory_bytes),
             memory_share(stage, seen.memory_limit_bytes), mark(view, s)}) {
      cells.push_back(std::move(cell));
    }
    table.add(std::move(cells));
  }
  return table.to_string() + more_rows(view.stages.size());
}

std::string worker_table(const PlanView& view) {
  if (view.workers.empty()) return "";
  TextTable table({{"worker"},
                   {"stages", Align::Left, 40},
                   {"time"},
                   {"memory"},
                   {"of limit"},
                   {"", Align::Left}});
  const size_t slowest = view.bottleneck.kind == Bottleneck::Kind::Worker ? view.bottleneck.index
                                                                          : view.workers.size();
  for (const size_t w : rows_shown(view.workers.size(), slowest)) {
    const WorkerView& worker = view.workers[w];
    const auto share = static_cast<double>(worker.memory_bytes) /
                       static_cast<double>(std::max<int64_t>(worker.memory_limit_bytes, 1));
    table.add({fmt::to_string(w), fmt::format("{}", fmt::join(worker.stages, ", ")),
               table_time(worker.time_ns),
               worker.memory_bytes == 0 ? "-" : format_bytes(worker.memory_bytes),
               worker.memory_limit_bytes > 0 && worker.memory_bytes > 0 ? percent_text(share) : "-",
               w == slowest ? "slowest" : ""});
  }
  return fmt::format("\n{}{}", table.to_string(), more_rows(view.workers.size()));
}

std::string link_table(const PlanView& view) {
  if (view.links.empty()) return "";
  TextTable table({{"link", Align::Left},
                   {"each way"},
                   {"through", Align::Left},
                   {"round trip"},
                   {"", Align::Left}});
  const size_t slowest = view.bottleneck.kind == Bottleneck::Kind::Link ? view.bottleneck.index : 0;
  for (const size_t l : rows_shown(view.links.size(), slowest)) {
    const plan::Link& link = view.plan.links[l];
    const LinkView& seen = view.links[l];
    table.add({fmt::format("{} -> {}", link.from.value, link.to.value), bytes_text(link),
               seen.level,
               seen.by_reference && seen.time_ns <= 0 ? "by reference" : table_time(seen.time_ns),
               view.bottleneck.is_link(l) ? "slowest" : ""});
  }
  return fmt::format("\n{}{}", table.to_string(), more_rows(view.links.size()));
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
      std::string(to_string(plan.weights)) + (plan.precision == Precision::Float32
                                         ? ""
                                         : fmt::format(", in {}", to_string(plan.precision))),
      std::any_of(plan.stages.begin(), plan.stages.end(),
                  [](const plan::Stage& stage) { return stage.replicas > 1; })
          ? ", gradients by " + view.gradient_method()
          : "",
      shortened(plan.cost_model, 20));
}

std::string totals(const PlanView& view) {
  const plan::Plan& plan = view.plan;
  std::string text = fmt::format("{} of {} per step, {} in flight per worker of stage 0\n",
                                 plural(plan.micro_batches, "micro-batch"),
                                 plural(plan.micro_batch_size, "sample"), plan.depth);
  const bool has_interval = plan.throughput_high_samples_per_s > 0;
  text += fmt::format("predicted {} samples/s", format_rate(plan.throughput_samples_per_s));
  if (has_interval) {
    text +=
        ", " + plan::Interval{plan.throughput_low_samples_per_s, plan.throughput_high_samples_per_s}
                   .text();
  }
  if (plan.latency_ns > 0)
    text += fmt::format(", {} from a sample's first forward to its step",
                        format_duration(plan.latency_ns));
  if (plan.idle_share > 0)
    text += fmt::format(", workers idle {} of the time", percent_text(plan.idle_share));
  text += '\n';
  if (view.bottleneck.time_ns > 0) {
    text += fmt::format("slowest part: {}, {} per micro-batch", view.bottleneck_name(),
                        duration_text(view.bottleneck.time_ns));
    // Replicas that are behind different links share the messages out.
    const double reached_ns =
        plan.throughput_samples_per_s > 0
            ? static_cast<double>(plan.micro_batch_size) * 1e9 / plan.throughput_samples_per_s
            : 0;
    if (view.bottleneck.kind == Bottleneck::Kind::Link && reached_ns > 0 &&
        reached_ns < 0.999 * view.bottleneck.time_ns)
      text += ", if one link carried all of it";
    const auto priced = static_cast<double>(plan.bottleneck_ns);
    if (priced > 0 &&
        std::fabs(priced - view.bottleneck.time_ns) > 0.02 * view.bottleneck.time_ns) {
      text += fmt::format(" as it runs\n  cost model {} prices the slowest part at {}",
                          shortened(plan.cost_model, 20), duration_text(priced));
    }
    text += '\n';
  }
  if (view.least_memory_limit_bytes > 0) {
    text +=
        fmt::format("memory limit {} per worker\n", format_bytes(view.least_memory_limit_bytes));
  }
  const size_t levels = std::min(plan.bytes_per_sample.size(), plan.cluster.levels.size());
  for (size_t level = 0; level < levels; ++level) {
    text += fmt::format("{}{} {}", level == 0 ? "bytes per sample: " : ", ",
                        view.level_name(static_cast<int>(level) + 1),
                        bytes_text(plan.bytes_per_sample[level]));
  }
  if (levels > 0) text += '\n';
  if (const std::string taken = view.processor_text(); !taken.empty()) text += taken + '\n';
  if (plan.optimality_gap > 0) {
    text += fmt::format(
        "optimality gap: the slowest part may be up to {} above that of the best plan\n",
        percent_text(plan.optimality_gap));
  }
  return text;
}

std::string families(const plan::Plan& plan) {
  if (plan.alternatives.empty()) return "";
  TextTable table({{"strategy", Align::Left, 16},
                   {"workers", Align::Left, 24},
                   {"samples/s"},
                   {"against this plan"}});
  for (const plan::Alternative& alternative : plan.alternatives) {
    const bool possible = alternative.throughput_samples_per_s > 0;
    table.add({std::string(to_string(alternative.strategy)), short_config(alternative.config, 24),
               possible ? format_rate(alternative.throughput_samples_per_s) : "-",
               is_chosen(plan, alternative) ? "chosen"
               : possible
                   ? ratio_text(alternative.throughput_samples_per_s, plan.throughput_samples_per_s)
                   : "no such plan"});
  }
  return fmt::format("\n{}", table.to_string());
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

std::string plan_table(const plan::Plan& plan, int64_t memory_limit_bytes) {
  const PlanView view(plan, memory_limit_bytes);
  std::string stages = stage_table(view, kLayersWidth);
  // Layer names are shortened when the other columns need the room.
  if (const size_t excess = widest_line(stages); excess > kTableWidth) {
    stages = stage_table(
        view, std::max(kLeastLayersWidth, kLayersWidth - std::min(kLayersWidth, excess - kTableWidth)));
  }
  std::string text = heading(view) + '\n' + stages + worker_table(view) + link_table(view) + '\n' +
                     totals(view) + families(plan);
  if (!plan.notes.empty()) text += "\nnotes\n";
  for (const std::string& note : plan.notes) text += wrapped_item(note, kTableWidth);
  return text;
}

}  // namespace penstock::report
