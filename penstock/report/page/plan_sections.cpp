#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "penstock/plan/interval.h"
#include "penstock/report/page/sections.h"
#include "penstock/report/plan/family_rows.h"
#include "penstock/report/plan/plan_picture.h"
#include "penstock/report/plan/plan_tables.h"
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
  /// `aside` follows the value in small print.
  void add(std::string_view value, std::string_view name, std::string_view aside = "") {
    text_ += fmt::format("<div class=\"figure\"><b>{}{}</b><span>{}</span></div>\n", escaped(value),
                         aside.empty() ? "" : fmt::format(" <small>{}</small>", escaped(aside)),
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

// The table and how many rows it leaves out.
std::string table_html(const Table& table, size_t total) {
  const std::string more = more_rows(total, kPageTables.rows);
  return table.html() + (more.empty() ? "" : html_paragraph("muted", more));
}

}  // namespace

std::string signed_percent(double share) {
  return fmt::format("{}{}", share >= 0 ? "+" : "", percent_text(share));
}

std::string key_numbers_section(const ReportInput& input, const PlanView& view) {
  KeyNumbers numbers;
  const double predicted = predicted_throughput(input);
  const double measured = measured_throughput(input);
  const plan::Interval interval = predicted_interval(input);
  if (predicted > 0) {
    numbers.add(format_rate(predicted), "samples/s, predicted",
                interval.high > 0 ? interval.text() : "");
  }
  if (measured > 0) {
    const std::string within =
        interval.high > 0 && predicted > 0
            ? interval.holds(measured) ? ", within the interval" : ", outside the interval"
            : "";
    numbers.add(format_rate(measured), "samples/s, measured",
                predicted > 0 ? signed_percent(measured / predicted - 1) + within : "");
  }
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
  std::string page =
      "<h2>Plan</h2>\n<div class=\"scroll picture\">\n" + plan_picture(view) + "</div>\n";
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
         html_list(family_reasons(view));
}

std::string changes_section(const std::vector<plan::WhatIfResult>& changes) {
  if (changes.empty()) return "";
  return "<h2>What if</h2>\n" + change_table(changes).html() + html_list(change_reasons(changes));
}

std::string notes_section(const plan::Plan& plan) {
  const std::string notes = html_list(other_notes(plan));
  return notes.empty() ? "" : "<h2>Notes</h2>\n" + notes;
}

}  // namespace penstock::report
