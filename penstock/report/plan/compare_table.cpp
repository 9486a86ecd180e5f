#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/report/plan/family_rows.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/report/text/text_table.h"
#include "penstock/util/format_rate.h"
#include "penstock/util/units.h"

namespace penstock::report {

namespace {

constexpr size_t kCompareWidth = 116;

std::string legend(const PlanView& view) {
  std::vector<std::string> names;
  for (size_t level = 1; level <= view.plan.cluster.levels.size(); ++level)
    names.push_back(view.level_name(static_cast<int>(level)));
  return fmt::format("per step: micro-batches{}",
                     names.empty() ? ""
                                   : fmt::format("; {}: bytes per sample through that level",
                                                 fmt::join(names, ", ")));
}

}  // namespace

std::string compare_table(const plan::Plan& plan) {
  const PlanView view(plan, 0);
  const std::vector<Family> families = families_of(plan);
  const size_t num_levels = plan.cluster.levels.size();
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
  TextTable table(std::move(columns));
  for (const Family& family : families) {
    const plan::Alternative& numbers = family.numbers;
    const bool possible = numbers.throughput_samples_per_s > 0;
    std::vector<std::string> cells = {
        family.is_winner ? "*" : "",
        std::string(to_string(numbers.strategy)),
        short_config(numbers.config, 18),
        name_of(numbers.weights),
        numbers.micro_batches > 0 ? fmt::to_string(numbers.micro_batches) : "-",
        possible ? format_rate(numbers.throughput_samples_per_s) : "-",
        possible ? ratio_text(numbers.throughput_samples_per_s,
                              throughput_of(families, plan::Strategy::Serial))
                 : "-",
        possible ? ratio_text(numbers.throughput_samples_per_s,
                              throughput_of(families, plan::Strategy::DataParallel))
                 : "-",
        numbers.latency_ns > 0 ? format_duration(numbers.latency_ns) : "-",
        numbers.memory_bytes > 0 ? format_bytes(numbers.memory_bytes) : "-",
        possible ? percent_text(numbers.idle_share) : "-"};
    for (size_t level = 0; level < num_levels; ++level) {
      const bool known = possible && level < numbers.bytes_per_sample.size();
      cells.push_back(known ? bytes_text(numbers.bytes_per_sample[level]) : "-");
    }
    table.add(std::move(cells));
  }
  std::string text = table.to_string() + "\n" + wrapped_item(legend(view), kCompareWidth);
  for (const std::string& reason : reasons_of(families)) text += wrapped_item(reason, kCompareWidth);
  return text;
}

std::string what_if_table(const std::vector<plan::WhatIfResult>& changes) {
  if (changes.empty()) return "";
  TextTable table({{"what if", Align::Left, 48},
                   {"samples/s"},
                   {"change"},
                   {"strategy", Align::Left, 16},
                   {"workers", Align::Left, 24},
                   {"memory"}});
  std::string misfits;
  for (const plan::WhatIfResult& change : changes) {
    if (!change.feasible) {
      table.add({change.change, "-", "no plan", "", "", "-"});
      misfits += wrapped_item(change.change + ": " + change.reason, kCompareWidth);
      continue;
    }
    table.add({change.change, format_rate(change.throughput_samples_per_s), change_text(change),
               std::string(to_string(change.strategy)), short_config(change.config, 24),
               change.memory_bytes > 0 ? format_bytes(change.memory_bytes) : "-"});
  }
  return table.to_string() + misfits;
}

}  // namespace penstock::report
