#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/report/plan/family_rows.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/report/report.h"
#include "penstock/report/text/html_table.h"
#include "penstock/report/text/text.h"
#include "penstock/util/format_rate.h"
#include "penstock/util/printable.h"
#include "penstock/util/units.h"

namespace penstock::report {

namespace {

// The page stays small for plans of thousands of stages; the picture shows them all in groups.
constexpr size_t kMostPlanRows = 500;

constexpr std::string_view kPlanStyle = R"(
:root{color-scheme:light dark}
body{margin:0 auto;max-width:1208px;padding:16px 24px 48px;background:#fff;color:#111827;
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:24px;margin:12px 0 4px}h2{font-size:18px;margin:32px 0 8px}p{margin:4px 0}
.muted{color:#4b5563}.accent{color:#b33a08;font-weight:600}
.figures{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}
.figure{border:1px solid #d5dbe3;border-radius:8px;padding:8px 14px;min-width:130px}
.figure b{display:block;font-size:20px}.figure span{color:#4b5563;font-size:13px}
.scroll{overflow-x:auto}.picture{border:1px solid #d5dbe3;border-radius:8px}
.picture svg{display:block;margin:0 auto}
table{border-collapse:collapse;font-size:13px}
th,td{padding:4px 8px;text-align:right;white-space:nowrap}
th{color:#4b5563;font-weight:600;white-space:normal;vertical-align:bottom;
border-bottom:1px solid #b8c2cf}
td{border-bottom:1px solid #e3e8ef;font-variant-numeric:tabular-nums}
.left{text-align:left}.wide{text-align:left;white-space:normal;min-width:180px}
tr.hot td{background:#fff4ec}tr.winner td{background:#e6f4ec}
@media (prefers-color-scheme:dark){
body{background:#0c1117;color:#e8edf3}.muted,.figure span,th{color:#a9b6c6}.accent{color:#ffa06b}
.figure,.picture{border-color:#2f3a48}th{border-color:#475569}td{border-color:#242e3b}
tr.hot td{background:#33201a}tr.winner td{background:#142a20}
}
)";

std::string more_html_rows(size_t total) {
  return total > kMostPlanRows
             ? html_paragraph(
                   "muted", fmt::format("... and {} more; --json has them all", total - kMostPlanRows))
             : "";
}

std::string html_time(double ns) { return ns > 0 ? duration_text(ns) : "-"; }
std::string html_size(int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; }

std::string key_numbers(const PlanView& view) {
  const plan::Plan& plan = view.plan;
  std::string text = "<div class=\"figures\">\n";
  const auto add = [&](std::string_view value, std::string_view name) {
    text += fmt::format("<div class=\"figure\"><b>{}</b><span>{}</span></div>\n", escaped(value),
                        escaped(name));
  };
  add(format_rate(plan.throughput_samples_per_s), "samples/s, predicted");
  add(short_config(plan.config(), 24),
      fmt::format("{} on {}", to_string(plan.strategy), plural(plan.num_workers(), "worker")));
  if (view.bottleneck.time_ns > 0) {
    add(duration_text(view.bottleneck.time_ns),
        fmt::format("per micro-batch in the slowest {}", view.bottleneck.noun()));
  }
  if (plan.latency_ns > 0) add(format_duration(plan.latency_ns), "from first forward to step");
  if (plan.idle_share > 0) add(percent_text(plan.idle_share), "of the workers' time idle");
  int64_t memory_bytes = 0;
  for (const plan::Stage& stage : plan.stages)
    memory_bytes = std::max(memory_bytes, stage.memory_bytes);
  if (memory_bytes > 0) {
    const int64_t limit = view.least_memory_limit_bytes;
    add(format_bytes(memory_bytes), limit > 0 ? fmt::format("of {} per worker", format_bytes(limit))
                                              : std::string("per worker, at most"));
  }
  if (plan.optimality_gap > 0) add(percent_text(plan.optimality_gap), "at most above the optimum");
  return text + "</div>\n";
}

std::string stages_section(const PlanView& view) {
  HtmlTable table({{"stage", ""},
                   {"layers", "wide"},
                   {"replicas", ""},
                   {"workers", "left"},
                   {"where", "left"},
                   {"forward", ""},
                   {"backward", ""},
                   {"sync", ""},
                   {"step", ""},
                   {"per micro-batch", ""},
                   {"weights", ""},
                   {"memory", ""},
                   {"of limit", ""},
                   {"", "left"}});
  for (size_t s = 0; s < std::min(view.stages.size(), kMostPlanRows); ++s) {
    const plan::Stage& stage = view.plan.stages[s];
    const StageView& seen = view.stages[s];
    const bool hot = view.bottleneck.is_stage(s);
    const int64_t limit = seen.memory_limit_bytes;
    table.add({fmt::to_string(s), layers_text(stage.layers, 60), fmt::to_string(stage.replicas),
               seen.workers, seen.where, html_time(static_cast<double>(stage.forward_ns)),
               html_time(static_cast<double>(stage.backward_ns)),
               html_time(static_cast<double>(stage.sync_ns)),
               html_time(static_cast<double>(stage.step_ns)), html_time(seen.time_ns()),
               html_size(stage.weight_bytes), html_size(stage.memory_bytes),
               limit > 0 ? percent_text(static_cast<double>(stage.memory_bytes) /
                                        static_cast<double>(limit))
                         : "-",
               fmt::format("{}{}{}", hot ? "slowest" : "", hot && stage.recompute ? ", " : "",
                           stage.recompute ? "recomputes" : "")},
              hot ? "hot" : "");
  }
  const std::string taken = view.processor_text();
  return "<h2>Stages</h2>\n" +
         html_paragraph("muted",
                        "Forward and backward of one micro-batch on one worker; replicas take "
                        "turns and share each step's synchronisation.") +
         table.to_string() + more_html_rows(view.stages.size()) +
         (taken.empty() ? "" : html_paragraph("muted", taken));
}

std::string workers_section(const PlanView& view) {
  if (view.workers.empty()) return "";
  HtmlTable table({{"worker", ""},
                   {"stages", "left"},
                   {"per micro-batch", ""},
                   {"memory", ""},
                   {"of limit", ""},
                   {"", "left"}});
  for (size_t w = 0; w < std::min(view.workers.size(), kMostPlanRows); ++w) {
    const WorkerView& worker = view.workers[w];
    const bool hot = view.bottleneck.kind == Bottleneck::Kind::Worker && view.bottleneck.index == w;
    const int64_t limit = worker.memory_limit_bytes;
    table.add({fmt::to_string(w), fmt::format("{}", fmt::join(worker.stages, ", ")),
               html_time(worker.time_ns), html_size(worker.memory_bytes),
               limit > 0 ? percent_text(static_cast<double>(worker.memory_bytes) /
                                        static_cast<double>(limit))
                         : "-",
               hot ? "slowest" : ""},
              hot ? "hot" : "");
  }
  return "<h2>Workers</h2>\n" +
         html_paragraph("muted",
                        "Each holds several stages; memory is that of all of them together.") +
         table.to_string() + more_html_rows(view.workers.size());
}

std::string links_section(const PlanView& view) {
  if (view.links.empty()) return "";
  HtmlTable table({{"from", ""},
                   {"to", ""},
                   {"each way", ""},
                   {"through", "left"},
                   {"round trip", ""},
                   {"", "left"}});
  for (size_t l = 0; l < std::min(view.links.size(), kMostPlanRows); ++l) {
    const plan::Link& link = view.plan.links[l];
    const LinkView& seen = view.links[l];
    const bool hot = view.bottleneck.is_link(l);
    table.add({fmt::to_string(link.from.value), fmt::to_string(link.to.value), bytes_text(link),
               seen.level,
               seen.by_reference && seen.time_ns <= 0 ? "by reference" : html_time(seen.time_ns),
               hot ? "slowest" : ""},
              hot ? "hot" : "");
  }
  return "<h2>Links, per micro-batch</h2>\n" + table.to_string() + more_html_rows(view.links.size());
}

std::string families_section(const PlanView& view) {
  if (view.plan.alternatives.empty()) return "";
  const std::vector<Family> families = families_of(view.plan);
  std::vector<Heading> columns = {{"strategy", "left"}, {"workers", "left"}, {"weights", "left"},
                                  {"per step", ""},     {"samples/s", ""},   {"x serial", ""},
                                  {"x dp", ""},         {"latency", ""},     {"memory", ""},
                                  {"idle", ""}};
  std::vector<std::string> levels;  // the headings point into it
  for (size_t level = 1; level <= view.plan.cluster.levels.size(); ++level) {
    levels.push_back(view.level_name(static_cast<int>(level)) + " bytes per sample");
  }
  for (const std::string& level : levels) columns.push_back({level, ""});
  HtmlTable table(std::move(columns));
  for (const Family& family : families) {
    const plan::Alternative& numbers = family.numbers;
    const double rate = numbers.throughput_samples_per_s;
    const bool possible = rate > 0;
    std::vector<std::string> cells = {
        fmt::format("{}{}", to_string(numbers.strategy), family.is_winner ? " (this plan)" : ""),
        short_config(numbers.config, 30),
        name_of(numbers.weights),
        numbers.micro_batches > 0 ? fmt::to_string(numbers.micro_batches) : "-",
        possible ? format_rate(rate) : "-",
        possible ? ratio_text(rate, throughput_of(families, plan::Strategy::Serial)) : "-",
        possible ? ratio_text(rate, throughput_of(families, plan::Strategy::DataParallel)) : "-",
        html_time(static_cast<double>(numbers.latency_ns)),
        html_size(numbers.memory_bytes),
        possible ? percent_text(numbers.idle_share) : "-"};
    for (size_t level = 0; level < levels.size(); ++level) {
      const bool known = possible && level < numbers.bytes_per_sample.size();
      cells.push_back(known ? bytes_text(numbers.bytes_per_sample[level]) : "-");
    }
    table.add(cells, family.is_winner ? "winner" : "");
  }
  std::string text = "<h2>All families</h2>\n" + table.to_string() + "<ul>\n";
  for (const std::string& reason : reasons_of(families))
    text += fmt::format("<li>{}</li>\n", escaped(reason));
  return text + "</ul>\n";
}

std::string what_if_section(const std::vector<plan::WhatIfResult>& changes) {
  if (changes.empty()) return "";
  HtmlTable table({{"what if", "left"},
                   {"samples/s", ""},
                   {"change", ""},
                   {"strategy", "left"},
                   {"workers", "left"},
                   {"memory", ""},
                   {"", "wide"}});
  for (const plan::WhatIfResult& change : changes) {
    const bool possible = change.feasible;
    table.add({change.change, possible ? format_rate(change.throughput_samples_per_s) : "-",
               change_text(change), std::string(to_string(change.strategy)),
               possible ? short_config(change.config, 30) : "", html_size(change.memory_bytes),
               change.reason});
  }
  return "<h2>What if</h2>\n" + table.to_string();
}

std::string notes_section(const plan::Plan& plan) {
  const std::vector<std::string> notes = other_notes(plan);
  if (notes.empty()) return "";
  std::string text = "<h2>Notes</h2>\n<ul>\n";
  for (const std::string& note : notes) text += fmt::format("<li>{}</li>\n", escaped(note));
  return text + "</ul>\n";
}

}  // namespace

std::string plan_html(const plan::Plan& plan, const std::vector<plan::WhatIfResult>& changes,
                      int64_t memory_limit_bytes) {
  const PlanView view(plan, memory_limit_bytes);
  const std::string title =
      fmt::format("{}: {} {}", plan.model.empty() ? "model" : shortened(plan.model, 60),
                  to_string(plan.strategy), short_config(plan.config(), 40));
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escaped(title), kPlanStyle);
  page +=
      html_paragraph("muted", fmt::format("weights {}, {} of {} per step, {} in flight per input "
                                          "worker, gradients by {}, cost model {}",
                                          to_string(plan.weights), plural(plan.micro_batches, "micro-batch"),
                                          plural(plan.micro_batch_size, "sample"), plan.depth,
                                          view.gradient_method(), plan.cost_model));
  if (view.bottleneck.time_ns > 0)
    page += html_paragraph("accent", "Slowest part: " + view.bottleneck_name());
  page += key_numbers(view);
  page += "<div class=\"scroll picture\">\n" + plan_svg(plan, memory_limit_bytes) + "</div>\n";
  page += families_section(view) + what_if_section(changes) + workers_section(view) +
          stages_section(view) + links_section(view) + notes_section(plan);
  return page + "</body>\n</html>\n";
}

}  // namespace penstock::report
