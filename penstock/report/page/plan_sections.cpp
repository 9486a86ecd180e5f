#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "penstock/plan/interval.h"
#include "penstock/report/page/sections.h"
#include "penstock/report/plan/family_rows.h"
#include "penstock/report/plan/plan_tables.h"
#include "penstock/report/plan/stage_bars.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

using schedule::Timeline;

namespace {

// The page stays small for plans of thousands of stages.
constexpr TableSize kPageTables{.rows = 500, .layers_width = 60};

class KeyNumbers {
 public:
  void add(std::string_view value, std::string_view name) {
    text_ += fmt::format("<div class=\"figure\"><b>{}</b><span>{}</span></div>\n", escaped(value),
                         escaped(name));
  }
  std::string to_string() const {
    return "<div class=\"figures\" id=\"figures\">\n" + text_ + "</div>\n";
  }

 private:
  std::string text_;
};

double measured_throughput(const ReportInput& input) {
  return input.history ? input.history->throughput_samples_per_s : 0;
}

double predicted_throughput(const ReportInput& input) {
  const bool in_history = input.history && input.history->predicted_throughput_samples_per_s > 0;
  return in_history ? input.history->predicted_throughput_samples_per_s
                    : input.plan.prediction.throughput_samples_per_s;
}

/// Of the run, or else of the plan; 0 to 0 where it is not known.
plan::Interval predicted_interval(const ReportInput& input) {
  if (input.history && input.history->predicted_throughput_samples_per_s > 0)
    return {input.history->prediction_low_samples_per_s,
            input.history->prediction_high_samples_per_s};
  return {input.plan.prediction.throughput_low_samples_per_s,
          input.plan.prediction.throughput_high_samples_per_s};
}

std::string_view slowest_name(const Bottleneck& bottleneck) {
  return bottleneck.kind == Bottleneck::Kind::Link    ? "slowest link"
         : bottleneck.kind == Bottleneck::Kind::Stage ? "slowest stage"
                                                      : "slowest worker";
}

/// "12 % slower than"
std::string more_or_less(double ratio) {
  if (std::fabs(ratio - 1) < 0.0005) return "as fast as";
  return fmt::format("{} {} than", percent_text(std::fabs(ratio - 1)),
                     ratio < 1 ? "slower" : "faster");
}

/// From 0 to the largest of them: the interval as a band, prediction and measurement as marks.
std::string rate_scale(double predicted, double measured, const plan::Interval& interval) {
  if (!(measured > 0) && !(interval.high > 0)) return "";
  const double most = 1.06 * std::max({predicted, measured, interval.high});
  const auto place = [most](double value) { return 100 * std::max(value, 0.0) / most; };
  std::string text = "<div class=\"scale\" aria-hidden=\"true\">";
  if (interval.high > 0)
    text += fmt::format("<i class=\"band\" style=\"left:{:.2f}%;width:{:.2f}%\"></i>",
                        place(interval.low), place(interval.high) - place(interval.low));
  const auto mark = [&](double value, std::string_view name) {
    if (value > 0)
      text += fmt::format("<i class=\"{}\" style=\"left:{:.2f}%\"></i>", name, place(value));
  };
  mark(predicted, "predicted");
  mark(measured, "measured");
  return text + "</div>\n";
}

/// Behind a line that says how many there are.
std::string folded(std::string_view name, const std::vector<std::string>& items) {
  if (items.empty()) return "";
  return fmt::format("<details><summary>{} ({})</summary>{}</details>\n", escaped(name),
                     items.size(), html_list(items));
}

// The table and how many rows it leaves out.
std::string table_html(const Table& table, size_t total) {
  const std::string more = more_rows(total, kPageTables.rows);
  return table.html() + (more.empty() ? "" : html_paragraph("muted", more));
}

}  // namespace

std::string signed_percent(double share) {
  return fmt::format("{}{}", share >= 0 ? "+" : "", percent_text(share));
}

std::string headline_section(const ReportInput& input) {
  const double predicted = predicted_throughput(input);
  const double measured = measured_throughput(input);
  const plan::Interval interval = predicted_interval(input);
  if (!(predicted > 0) && !(measured > 0)) return "";
  const bool has_interval = interval.high > 0 && predicted > 0;
  const auto number = [](double value, std::string_view name, const std::string& aside) {
    return fmt::format("<p><b>{}</b> samples/s {}{}</p>\n", escaped(format_rate(value)), name,
                       aside.empty() ? "" : fmt::format(" <small>{}</small>", escaped(aside)));
  };
  std::string tile;
  if (measured > 0) tile += number(measured, "measured", "");
  if (predicted > 0) tile += number(predicted, "predicted", has_interval ? interval.text() : "");
  bool is_outside = false;
  if (measured > 0 && predicted > 0) {
    is_outside = has_interval && !interval.holds(measured);
    const std::string_view within = !has_interval ? ""
                                    : is_outside  ? ", outside the interval"
                                                  : ", within the interval";
    tile +=
        html_paragraph(is_outside ? "accent" : "muted",
                       fmt::format("{} predicted{}", more_or_less(measured / predicted), within));
  }
  return fmt::format("<section id=\"headline\">{}{}</section>\n", tile,
                     rate_scale(predicted, measured, interval));
}

std::string key_numbers_section(const ReportInput& input, const PlanView& view) {
  KeyNumbers numbers;
  for (const Timeline& timeline : input.timelines) {
    numbers.add(percent_text(timeline.idle_share()), "idle, " + timeline.source);
  }
  if (input.timelines.empty() && input.plan.prediction.idle_share > 0) {
    numbers.add(percent_text(input.plan.prediction.idle_share), "idle, predicted");
  }
  for (const Timeline& timeline : input.timelines) {
    numbers.add(duration_text(static_cast<double>(timeline.makespan_ns())),
                "duration, " + timeline.source);
  }
  if (input.timelines.empty() && input.plan.prediction.latency_ns > 0)
    numbers.add(format_duration(input.plan.prediction.latency_ns), "from first forward to step");
  int64_t peak_bytes = 0;
  for (const int64_t bytes : input.peak_memory_bytes) peak_bytes = std::max(peak_bytes, bytes);
  if (input.peak_memory_bytes.empty()) {
    for (const plan::Stage& stage : input.plan.stages)
      peak_bytes = std::max(peak_bytes, stage.memory_bytes);
  }
  if (peak_bytes > 0) {
    const std::optional<int64_t> limit = view.least_memory_limit_bytes;
    numbers.add(format_bytes(peak_bytes),
                limit ? "memory, of " + format_bytes(*limit) : std::string("peak memory"));
  }
  if (view.bottleneck.time_ns > 0) {
    numbers.add(duration_text(view.bottleneck.time_ns), slowest_name(view.bottleneck));
  }
  if (input.plan.explanation.optimality_gap > 0)
    numbers.add(percent_text(input.plan.explanation.optimality_gap), "at most above the optimum");
  return numbers.to_string();
}

std::string plan_section(const PlanView& view) {
  std::string page = "<h2>Plan</h2>\n" + stage_bars(view);
  if (!view.workers.empty()) {
    page += "<h2>Workers</h2>\n" +
            html_paragraph("muted",
                           "Each holds several stages; memory is that of all of them together.") +
            table_html(worker_table(view, kPageTables), view.workers.size());
  }
  page +=
      "<h2>Stages</h2>\n" +
      html_paragraph("muted",
                     "Compute is forward and backward of one micro-batch on one worker. Time is "
                     "per micro-batch of the pipeline: replicas take turns and share each "
                     "step's synchronisation.") +
      table_html(stage_table(view, kPageTables), view.stages.size());
  if (const std::string taken = view.processor_text(); !taken.empty())
    page += html_paragraph("muted", taken);
  if (!view.links.empty()) {
    page += "<h2>Links, per micro-batch</h2>\n" +
            table_html(link_table(view, kPageTables), view.links.size());
  }
  return page;
}

std::string strategies_section(const PlanView& view) {
  if (view.plan.explanation.alternatives.empty()) return "";
  return "<h2>Strategies</h2>\n<div id=\"strategies\">" + family_table(view).html() + "</div>\n" +
         folded("Why", family_reasons(view));
}

std::string changes_section(const std::vector<plan::WhatIfResult>& changes) {
  if (changes.empty()) return "";
  return "<h2>What if</h2>\n" + change_table(changes).html() +
         folded("Why", change_reasons(changes));
}

std::string notes_section(const plan::Plan& plan) { return folded("Notes", other_notes(plan)); }

}  // namespace penstock::report
