#include "penstock/report/plan/plan_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "penstock/report/plan/family_rows.h"
#include "penstock/report/text/text.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

std::string share_or_dash(int64_t bytes, std::optional<int64_t> limit_bytes) {
  if (!limit_bytes || bytes <= 0) return "-";
  return percent_text(static_cast<double>(bytes) / static_cast<double>(*limit_bytes));
}

// Plans of thousands of stages stay readable.
std::vector<size_t> rows_shown(size_t total, size_t most, size_t slowest) {
  std::vector<size_t> rows;
  for (size_t k = 0; k < std::min(total, most); ++k) rows.push_back(k);
  if (slowest < total && slowest >= most) rows.back() = slowest;
  return rows;
}

size_t slowest_row(const PlanView& view, Bottleneck::Kind kind) {
  return view.bottleneck.kind == kind ? view.bottleneck.index : 0;
}

RowMark mark_if(bool slowest) { return slowest ? RowMark::Slowest : RowMark::None; }

std::string remarks(const PlanView& view, size_t s) {
  const bool slowest = view.bottleneck.is_stage(s);
  const plan::Stage& stage = view.plan.stages[s];
  std::string text = stage.recompute ? "recomputes" : "";
  const auto add = [&text](const char* more) {
    text += (text.empty() ? "" : ", ") + std::string(more);
  };
  if (stage.offload) add("offloads");
  if (stage.shard_optimizer) add("shards state");
  if (stage.sequence) add("shares places");
  if (slowest) add("slowest");
  return text;
}

// "15 (0-14)": how many, and their numbers in the cluster; of two teams of four "2t4 (0-7)".
std::string workers_cell(const plan::Stage& stage, const StageView& seen) {
  const std::string count = stage.tensor == 1 ? fmt::to_string(stage.replicas)
                                              : fmt::format("{}t{}", stage.replicas, stage.tensor);
  return seen.workers == "-" ? count : fmt::format("{} ({})", count, seen.workers);
}

}  // namespace

std::string more_rows(size_t total, size_t most) {
  return total > most ? fmt::format("... and {} more", total - most) : "";
}

Table stage_table(const PlanView& view, const TableSize& size) {
  const bool placed = std::any_of(view.stages.begin(), view.stages.end(),
                                  [](const StageView& stage) { return !stage.where.empty(); });
  std::vector<Column> columns = {
      {"stage"}, {"layers", Align::Left, size.layers_width}, {"workers"}};
  if (placed) columns.push_back({"where", Align::Left, 24});
  for (const char* title : {"compute", "sync", "time", "memory", "of limit"})
    columns.push_back({title});
  columns.push_back({"", Align::Left});
  Table table(std::move(columns));
  for (const size_t s :
       rows_shown(view.stages.size(), size.rows, slowest_row(view, Bottleneck::Kind::Stage))) {
    const plan::Stage& stage = view.plan.stages[s];
    const StageView& seen = view.stages[s];
    std::vector<std::string> cells = {
        fmt::to_string(s), layers_text(stage.layers, size.layers_width), workers_cell(stage, seen)};
    if (placed) cells.push_back(seen.where);
    cells.push_back(time_or_dash(static_cast<double>(stage.work_ns())));
    cells.push_back(time_or_dash(static_cast<double>(stage.sync_ns)));
    cells.push_back(time_or_dash(seen.time_ns()));
    cells.push_back(stage.memory_bytes == 0 ? "-" : format_bytes(stage.memory_bytes));
    cells.push_back(share_or_dash(stage.memory_bytes, seen.memory_limit_bytes));
    cells.push_back(remarks(view, s));
    table.add(std::move(cells), mark_if(view.bottleneck.is_stage(s)));
  }
  return table;
}

Table worker_table(const PlanView& view, const TableSize& size) {
  Table table(
      {{"worker"}, {"stages", Align::Left}, {"time"}, {"memory"}, {"of limit"}, {"", Align::Left}});
  const size_t slowest = view.bottleneck.kind == Bottleneck::Kind::Worker ? view.bottleneck.index
                                                                          : view.workers.size();
  for (const size_t w : rows_shown(view.workers.size(), size.rows, slowest)) {
    const WorkerView& worker = view.workers[w];
    table.add({fmt::to_string(w), fmt::format("{}", fmt::join(worker.stages, ", ")),
               time_or_dash(worker.time_ns),
               worker.memory_bytes == 0 ? "-" : format_bytes(worker.memory_bytes),
               share_or_dash(worker.memory_bytes, worker.memory_limit_bytes),
               w == slowest ? "slowest" : ""},
              mark_if(w == slowest));
  }
  return table;
}

Table link_table(const PlanView& view, const TableSize& size) {
  Table table({{"link", Align::Left},
               {"each way"},
               {"through", Align::Left},
               {"round trip"},
               {"", Align::Left}});
  for (const size_t l :
       rows_shown(view.links.size(), size.rows, slowest_row(view, Bottleneck::Kind::Link))) {
    const plan::Link& link = view.plan.links[l];
    const LinkView& seen = view.links[l];
    table.add({fmt::format("{} -> {}", link.from.value, link.to.value),
               bytes_text(link, view.plan.precision), seen.level,
               seen.by_reference && seen.time_ns <= 0 ? "by reference" : time_or_dash(seen.time_ns),
               view.bottleneck.is_link(l) ? "slowest" : ""},
              mark_if(view.bottleneck.is_link(l)));
  }
  return table;
}

Table family_table(const PlanView& view) {
  const std::vector<Family> families = families_of(view.plan);
  const size_t num_levels = view.plan.cluster.levels.size();
  std::vector<Column> columns = {{""},
                                 {"strategy", Align::Left, 16},
                                 {"workers", Align::Left, 18},
                                 {"weights", Align::Left, 13},
                                 {"per step"},
                                 {"samples/s"},
                                 {"x serial"},
                                 {"x dp"},
                                 {"latency"},
                                 {"memory"},
                                 {"idle"}};
  for (size_t level = 1; level <= num_levels; ++level)
    columns.push_back({view.level_name(static_cast<int>(level))});
  Table table(std::move(columns));
  for (const Family& family : families) {
    const plan::Alternative& numbers = family.numbers;
    const double rate = numbers.throughput_samples_per_s;
    const bool possible = rate > 0;
    const auto against = [&](plan::Strategy strategy) {
      return possible ? ratio_text(rate, throughput_of(families, strategy)) : "-";
    };
    std::vector<std::string> cells = {
        family.is_winner ? "*" : "",
        std::string(to_string(numbers.strategy)),
        short_config(numbers.config, 18),
        name_of(numbers.weights),
        numbers.micro_batches > 0 ? fmt::to_string(numbers.micro_batches) : "-",
        possible ? format_rate(rate) : "-",
        against(plan::Strategy::Serial),
        against(plan::Strategy::DataParallel),
        time_or_dash(static_cast<double>(numbers.latency_ns)),
        size_or_dash(numbers.memory_bytes),
        possible ? percent_text(numbers.idle_share) : "-"};
    for (size_t level = 0; level < num_levels; ++level) {
      const bool known = possible && level < numbers.bytes_per_sample.size();
      cells.push_back(known ? bytes_text(numbers.bytes_per_sample[level]) : "-");
    }
    table.add(std::move(cells), family.is_winner ? RowMark::Chosen : RowMark::None);
  }
  return table;
}

std::vector<std::string> family_reasons(const PlanView& view) {
  std::string levels;
  for (size_t level = 1; level <= view.plan.cluster.levels.size(); ++level)
    levels += (level == 1 ? "; " : ", ") + view.level_name(static_cast<int>(level));
  if (!levels.empty()) levels += ": bytes per sample through that level";
  std::vector<std::string> reasons = reasons_of(families_of(view.plan));
  reasons.insert(reasons.begin(), "per step: micro-batches" + levels);
  return reasons;
}

Table change_table(const std::vector<plan::WhatIfResult>& changes) {
  Table table({{"what if", Align::Left, 48},
               {"samples/s"},
               {"change"},
               {"strategy", Align::Left, 16},
               {"workers", Align::Left, 24},
               {"memory"}});
  for (const plan::WhatIfResult& change : changes) {
    if (!change.feasible) {
      table.add({change.change, "-", "no plan", "", "", "-"});
      continue;
    }
    table.add({change.change, format_rate(change.throughput_samples_per_s), change_text(change),
               std::string(to_string(change.strategy)), short_config(change.config, 24),
               size_or_dash(change.memory_bytes)});
  }
  return table;
}

std::vector<std::string> change_reasons(const std::vector<plan::WhatIfResult>& changes) {
  std::vector<std::string> reasons;
  for (const plan::WhatIfResult& change : changes) {
    if (!change.feasible) reasons.push_back(change.change + ": " + change.reason);
  }
  return reasons;
}

}  // namespace penstock::report
