#include "penstock/report/page/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "penstock/plan/interval.h"
#include "penstock/report/page/curve_chart.h"
#include "penstock/report/page/page_assets.h"
#include "penstock/report/plan/family_rows.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/report/report.h"
#include "penstock/report/text/html_table.h"
#include "penstock/report/text/text.h"
#include "penstock/report/timeline/lane_data.h"
#include "penstock/schedule/timeline_difference.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/format_rate.h"
#include "penstock/util/printable.h"
#include "penstock/util/units.h"

namespace penstock::report {

using schedule::Op;
using schedule::Timeline;
using schedule::TimelineEvent;

namespace {

constexpr size_t kMostPageRows = 200;

void check(const ReportInput& input) {
  if (const std::string trouble = too_large_to_draw(input.timelines); !trouble.empty())
    throw ConfigError(trouble);
  for (const Timeline& timeline : input.timelines) {
    for (size_t w = 0; w < timeline.workers.size(); ++w) {
      for (const TimelineEvent& event : timeline.workers[w]) {
        if (event.action.stage.value >= 0 && event.action.stage.index() < input.plan.stages.size())
          continue;
        throw ConfigError(
            fmt::format("worker {} of the {} timeline runs stage {}, the plan has {}: they do not "
                        "belong together",
                        w, shortened(timeline.source, 40), event.action.stage.value,
                        plural(static_cast<int64_t>(input.plan.stages.size()), "stage")));
      }
    }
  }
}

/// JSON without any '<', so that nothing in it can end a script element.
std::string script_json(const Json& document) {
  std::string text;
  for (const char c : document.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

/// The source expression of the content security policy that admits the script.
std::string script_hash() {
  const std::string_view digits = page_script_sha256();
  const auto nibble = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t k = 0; k + 1 < digits.size(); k += 2)
    bytes += static_cast<char>(nibble(digits[k]) << 4 | nibble(digits[k + 1]));
  return "sha256-" + base64(bytes);
}

/// Empty when the history belongs to this plan, or when one of the two does not name its model and
/// strategy.
std::string history_note(const ReportInput& input) {
  if (!input.history) return "";
  std::string differences;
  const auto compare_names = [&](std::string_view what, const std::string& found,
                                 const std::string& expected) {
    if (found.empty() || expected.empty() || found == expected) return;
    differences += fmt::format("{} {} {} instead of {}", differences.empty() ? "" : ",", what,
                               shortened(found, 60), shortened(expected, 60));
  };
  compare_names("model", input.history->model, input.plan.model);
  compare_names("strategy", input.history->strategy, std::string(to_string(input.plan.strategy)));
  return differences.empty() ? ""
                             : fmt::format("The history belongs to another run:{}.", differences);
}

std::string page_title(const plan::Plan& plan) {
  return fmt::format("{}: {} {}", plan.model.empty() ? "model" : shortened(plan.model, 60),
                     to_string(plan.strategy), short_config(plan.config(), 40));
}

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
                    : input.plan.throughput_samples_per_s;
}

/// Of the run, or else of the plan; 0 to 0 where it is not known.
plan::Interval predicted_interval(const ReportInput& input) {
  if (input.history && input.history->predicted_throughput_samples_per_s > 0)
    return {input.history->prediction_low_samples_per_s,
            input.history->prediction_high_samples_per_s};
  return {input.plan.throughput_low_samples_per_s, input.plan.throughput_high_samples_per_s};
}

std::string signed_percent(double share) {
  return fmt::format("{}{}", share >= 0 ? "+" : "", percent_text(share));
}

std::string_view slowest_name(const Bottleneck& bottleneck) {
  return bottleneck.kind == Bottleneck::Kind::Link    ? "slowest link"
         : bottleneck.kind == Bottleneck::Kind::Stage ? "slowest stage"
                                                      : "slowest worker";
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
  if (input.timelines.empty() && input.plan.idle_share > 0) {
    numbers.add(percent_text(input.plan.idle_share), "idle, predicted");
  }
  for (const Timeline& timeline : input.timelines) {
    numbers.add(duration_text(static_cast<double>(timeline.makespan_ns())),
                "duration, " + timeline.source);
  }
  int64_t peak_bytes = 0;
  for (const int64_t bytes : input.peak_memory_bytes) peak_bytes = std::max(peak_bytes, bytes);
  if (input.peak_memory_bytes.empty()) {
    for (const plan::Stage& stage : input.plan.stages)
      peak_bytes = std::max(peak_bytes, stage.memory_bytes);
  }
  if (peak_bytes > 0) {
    const int64_t limit = view.least_memory_limit_bytes;
    numbers.add(format_bytes(peak_bytes),
                limit > 0 ? "memory, of " + format_bytes(limit) : std::string("peak memory"));
  }
  if (view.bottleneck.time_ns > 0) {
    numbers.add(duration_text(view.bottleneck.time_ns), slowest_name(view.bottleneck));
  }
  return numbers.to_string();
}

Json page_data(const ReportInput& input, const PlanView& view, LaneData& data) {
  Json stages = Json::array();
  if (!input.timelines.empty()) {
    std::vector<int64_t> input_bytes(input.plan.stages.size());
    for (const plan::Link& link : input.plan.links) {
      if (link.to.value >= 0 && link.to.index() < input_bytes.size()) {
        input_bytes[link.to.index()] = saturating_add(input_bytes[link.to.index()], link.bytes);
      }
    }
    for (size_t s = 0; s < input.plan.stages.size(); ++s) {
      const plan::Stage& stage = input.plan.stages[s];
      stages.push_back({{"layers", layers_text(stage.layers, 48)},
                        {"weight", stage.weight_bytes},
                        {"stash", stage.stash_bytes},
                        {"input", input_bytes[s]}});
    }
  }
  Json document = std::move(data.header);
  document["stages"] = std::move(stages);
  document["optimizer_state_per_weight"] = input.plan.optimizer_state_per_weight;
  document["slowest_stages"] = view.bottleneck.kind == Bottleneck::Kind::Stage
                                   ? std::vector{view.bottleneck.index}
                                   : view.bottleneck.stages;
  document["memory_limit_bytes"] = view.least_memory_limit_bytes;
  return document;
}

std::string legend(const ReportInput& input) {
  std::set<Op> ops;
  for (const Timeline& timeline : input.timelines) {
    for (const auto& events : timeline.workers) {
      for (const TimelineEvent& event : events) ops.insert(event.action.op);
    }
  }
  std::string text;
  const auto entry = [&](std::string_view style, std::string_view name) {
    text += fmt::format("<span class=\"key\"><i style=\"background:var(--{})\"></i>{}</span>\n",
                        style, name);
  };
  const bool split = ops.contains(Op::BackwardInput);
  if (ops.contains(Op::Forward)) entry("forward", "forward F");
  if (split || ops.contains(Op::Backward))
    entry("backward", !split                       ? "backward B"
                      : ops.contains(Op::Backward) ? "backward B, I"
                                                   : "backward I");
  if (ops.contains(Op::BackwardWeight)) entry("weight", "weights W");
  if (ops.contains(Op::Recompute)) entry("recompute", "recomputation R");
  if (ops.contains(Op::SendForward) || ops.contains(Op::RecvForward)) entry("message", "message");
  if (ops.contains(Op::SyncGradients) || ops.contains(Op::NormGradients)) entry("sync", "sync");
  if (ops.contains(Op::Step)) entry("step", "step");
  text +=
      "<span class=\"key\"><i style=\"background:repeating-linear-gradient(135deg,var(--idle) 0 "
      "3px,var(--hatch) 3px "
      "4px)\"></i>idle</span>\n";
  return text +
         "<span class=\"key\"><i "
         "style=\"height:3px;vertical-align:3px;background:var(--waiting)\"></i>waiting for "
         "another</span>\n";
}

// Below the timelines, of those that have sums which travel while workers compute.
std::vector<Timeline> rows_of_sums(const ReportInput& input) {
  std::vector<Timeline> rows;
  for (const Timeline& timeline : input.timelines) {
    if (!timeline.sums.empty()) rows.push_back(sum_rows(timeline));
  }
  return rows;
}

std::string timeline_section(const ReportInput& input) {
  if (input.timelines.empty()) return "";
  std::string lanes;
  std::vector<std::string> names;
  for (const Timeline& timeline : input.timelines) names.push_back(timeline.source);
  for (const Timeline& rows : rows_of_sums(input)) names.push_back(rows.source);
  for (size_t t = 0; t < names.size() && names.size() > 1; ++t) {
    lanes += fmt::format("<label><input type=\"checkbox\" data-lane=\"{}\" checked> {}</label>\n",
                         t, escaped(names[t]));
  }
  return "<h2>Timeline</h2>\n<div class=\"bar\">\n"
         "<span class=\"group\"><button id=\"zoom-in\" title=\"zoom in (+)\">+</button><button "
         "id=\"zoom-out\" title=\"zoom out "
         "(-)\">&minus;</button>"
         "<button id=\"pan-left\" title=\"earlier (left arrow)\">&lsaquo;</button><button "
         "id=\"pan-right\" title=\"later (right "
         "arrow)\">&rsaquo;</button>"
         "<button id=\"fit\" title=\"all of it (Home)\">all</button></span>\n"
         "<span class=\"group\"><button id=\"rows-taller\" title=\"taller rows (])\">rows "
         "+</button><button id=\"rows-lower\" "
         "title=\"lower rows "
         "([)\">rows &minus;</button></span>\n" +
         lanes +
         "<label><input type=\"checkbox\" id=\"messages\" checked> messages</label>\n<span "
         "class=\"spring\"></span>\n<span "
         "class=\"legend\">" +
         legend(input) +
         "</span></div>\n<canvas id=\"timeline\" tabindex=\"0\" role=\"img\" aria-label=\"Timeline "
         "of all workers; the tables below have "
         "its numbers\">"
         "</canvas>\n<p class=\"muted\">Wheel zooms, drag pans, Shift+wheel pans, Alt+wheel "
         "changes the rows' height, a click selects the "
         "worker "
         "below. Keys: <kbd>+</kbd> <kbd>-</kbd> <kbd>&larr;</kbd> <kbd>&rarr;</kbd> "
         "<kbd>&uarr;</kbd> <kbd>&darr;</kbd> <kbd>[</kbd> "
         "<kbd>]</kbd> "
         "<kbd>Home</kbd>.</p>\n";
}

std::string memory_section(const ReportInput& input) {
  if (input.timelines.empty()) return "";
  std::string text =
      "<h2>Memory and weight versions</h2>\n<div class=\"bar\">\n<select id=\"worker\" "
      "aria-label=\"worker\"></select>\n"
      "<label><select id=\"memory-lane\" aria-label=\"times\"></select></label>\n<span "
      "class=\"muted\" id=\"memory-note\"></span>\n"
      "<span class=\"spring\"></span>\n<span class=\"legend\" id=\"memory-legend\">";
  for (const auto& [style, name] : {std::pair{"stash", "activations"},
                                    {"weights", "weight versions"},
                                    {"gradients", "gradients"},
                                    {"state", "optimiser state"}}) {
    text += fmt::format("<span class=\"key\"><i style=\"background:var(--{})\"></i>{}</span>\n",
                        style, name);
  }
  return text +
         "</span></div>\n<canvas id=\"memory\" role=\"img\" aria-label=\"Memory over "
         "time\"></canvas>\n"
         "<canvas id=\"versions\" role=\"img\" aria-label=\"Weight versions in flight over "
         "time\"></canvas>\n"
         "<p class=\"muted\">Above: bytes by the plan's sizes and the order of actions. Below: "
         "versions of a stage's weights held at once. "
         "Both "
         "follow the timeline's zoom.</p>\n";
}

std::string or_dash(double ns) { return ns >= 0.5 ? duration_text(ns) : "-"; }
std::string signed_duration(double ns) {
  return std::fabs(ns) < 0.5 ? "-" : (ns < 0 ? "-" : "+") + duration_text(std::fabs(ns));
}

std::string differences_section(const ReportInput& input) {
  if (input.timelines.size() < 2) return "";
  const Timeline& predicted = input.timelines[0];
  const Timeline& measured = input.timelines[1];
  const schedule::TimelineComparison comparison = schedule::compare(predicted, measured);
  HtmlTable table({{"action", "left"},
                   {"stage", ""},
                   {"count", ""},
                   {"predicted, each", ""},
                   {"measured, each", ""},
                   {"difference, each", ""},
                   {"", ""},
                   {"waiting, predicted", ""},
                   {"waiting, measured", ""},
                   {"difference, in all", ""}});
  const size_t shown = std::min<size_t>(comparison.rows.size(), 16);
  for (size_t r = 0; r < shown; ++r) {
    const schedule::TimelineDifference& row = comparison.rows[r];
    const auto count = static_cast<double>(row.count);
    table.add({std::string(schedule::to_string(row.op)), fmt::to_string(row.stage.value),
               fmt::to_string(row.count), or_dash(row.predicted_ns / count),
               or_dash(row.measured_ns / count), signed_duration(row.more_ns() / count),
               row.predicted_ns > 0 ? signed_percent(row.more_ns() / row.predicted_ns) : "",
               or_dash(row.predicted_waiting_ns), or_dash(row.measured_waiting_ns),
               signed_duration(row.more_with_waiting_ns())});
  }
  std::string note = fmt::format("{} compared", plural(comparison.matched, "action"));
  if (comparison.only_predicted > 0)
    note += fmt::format(", {} only {}", comparison.only_predicted, shortened(predicted.source, 40));
  if (comparison.only_measured > 0)
    note += fmt::format(", {} only {}", comparison.only_measured, shortened(measured.source, 40));
  if (shown < comparison.rows.size())
    note += fmt::format("; the {} largest of {} rows", shown, comparison.rows.size());
  return fmt::format("<h2>Largest differences, {} against {}</h2>\n", escaped(measured.source),
                     escaped(predicted.source)) +
         html_paragraph(
             "muted",
             note +
                 ". Times exclude waiting, which has columns of its own; \"in all\" includes it.") +
         "<div id=\"differences\">" + table.to_string() + "</div>\n";
}

template <class Rows, class Get>
std::vector<double> column(const Rows& rows, Get get) {
  std::vector<double> values;
  values.reserve(rows.size());
  for (const auto& row : rows) values.push_back(static_cast<double>(get(row)));
  return values;
}

std::string history_section(const ReportInput& input) {
  if (!input.history) return "";
  const auto& steps = input.history->steps;
  const auto& epochs = input.history->epochs;
  const std::vector<double> at_step = column(steps, [](const HistoryStep& s) { return s.step; });
  const std::vector<double> at_epoch =
      column(epochs, [](const HistoryEpoch& e) { return e.epoch; });
  CurveChart loss("Loss", "step");
  loss.add("loss", at_step, column(steps, [](const HistoryStep& s) { return s.loss; }));
  CurveChart epoch_loss("Training loss", "epoch");
  epoch_loss.add("training loss", at_epoch,
                 column(epochs, [](const HistoryEpoch& e) { return e.train_loss; }));
  CurveChart accuracy("Accuracy", "epoch", CurveChart::Unit::Percent);
  accuracy.add("test", at_epoch,
               column(epochs, [](const HistoryEpoch& e) { return e.test_accuracy; }));
  accuracy.add("training", at_epoch,
               column(epochs, [](const HistoryEpoch& e) { return e.train_accuracy; }));
  CurveChart rate("Learning rate", "step");
  rate.add("learning rate", at_step,
           column(steps, [](const HistoryStep& s) { return s.learning_rate; }));
  CurveChart norm("Gradient norm", "step");
  norm.add("gradient norm", at_step,
           column(steps, [](const HistoryStep& s) { return s.grad_norm; }));
  const std::string charts = loss.to_string() + accuracy.to_string() + rate.to_string() +
                             norm.to_string() +
                             (loss.num_curves() == 0 ? epoch_loss.to_string() : "");
  if (charts.empty())
    return "<h2>Training</h2>\n" + html_paragraph("muted", "The history holds no finite number.");
  return "<h2>Training</h2>\n<div class=\"charts\">\n" + charts + "</div>\n";
}

std::string strategies_section(const PlanView& view) {
  const std::vector<Family> families = families_of(view.plan);
  if (families.empty()) return "";
  HtmlTable table({{"strategy", "left"},
                   {"workers", "left"},
                   {"weights", "left"},
                   {"samples/s", ""},
                   {"micro-batches", ""},
                   {"forward to step", ""},
                   {"memory", ""},
                   {"idle", ""},
                   {"", "wide"}});
  const auto if_known = [](bool known, std::string text) {
    return known ? std::move(text) : std::string("-");
  };
  for (size_t f = 0; f < std::min(families.size(), kMostPageRows); ++f) {
    const plan::Alternative& numbers = families[f].numbers;
    const bool possible = numbers.throughput_samples_per_s > 0;
    table.add(
        {std::string(to_string(numbers.strategy)), short_config(numbers.config, 30),
         name_of(numbers.weights), if_known(possible, format_rate(numbers.throughput_samples_per_s)),
         if_known(numbers.micro_batches > 0, fmt::to_string(numbers.micro_batches)),
         if_known(numbers.latency_ns > 0, duration_text(static_cast<double>(numbers.latency_ns))),
         if_known(numbers.memory_bytes > 0, format_bytes(numbers.memory_bytes)),
         if_known(possible, percent_text(numbers.idle_share)), numbers.note},
        families[f].is_winner ? "winner" : "");
  }
  return "<h2>Strategies</h2>\n<div id=\"strategies\">" + table.to_string() + "</div>\n" +
         (families.size() > kMostPageRows
              ? html_paragraph("muted", fmt::format("... and {} more", families.size() - kMostPageRows))
              : "");
}

std::string report_notes(const plan::Plan& plan) {
  if (plan.notes.empty()) return "";
  std::string text = "<h2>Notes</h2>\n<ul>\n";
  for (size_t n = 0; n < std::min(plan.notes.size(), kMostPageRows); ++n)
    text += fmt::format("<li>{}</li>\n", escaped(plan.notes[n]));
  return text + "</ul>\n";
}

std::string head(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src '{0}'\">\n"
      "<title>{1}</title>\n<style>{2}</style>\n</head>\n<body>\n<header><h1>{1}</h1><button "
      "id=\"theme\" title=\"light or "
      "dark\">Dark</button>"
      "</header>\n<div id=\"trouble\" hidden></div>\n<noscript><p class=\"accent\">The timeline is "
      "drawn by this page's script, which is "
      "switched off.</p></noscript>\n",
      script_hash(), escaped(title), page_style());
}

}  // namespace

std::string too_large_to_draw(const std::vector<Timeline>& timelines) {
  int64_t actions = 0;
  for (const Timeline& timeline : timelines) {
    if (timeline.workers.size() > kMaxReportWorkers) {
      return fmt::format("a report draws at most {} workers, the {} timeline has {}",
                         kMaxReportWorkers, shortened(timeline.source, 40),
                         timeline.workers.size());
    }
    for (const auto& events : timeline.workers) actions += static_cast<int64_t>(events.size());
    for (const auto& lane : timeline.sums) actions += static_cast<int64_t>(lane.events.size());
  }
  if (actions <= kMaxReportActions) return "";
  return fmt::format("a report draws at most {} actions, found {}: use fewer mini-batches",
                     kMaxReportActions, actions);
}

std::string html_report(const ReportInput& input) {
  check(input);
  const plan::Plan& plan = input.plan;
  const PlanView view(plan, 0);
  const std::vector<Timeline> sums = rows_of_sums(input);
  std::vector<const Timeline*> timelines;
  for (const Timeline& timeline : input.timelines) timelines.push_back(&timeline);
  for (const Timeline& rows : sums) timelines.push_back(&rows);
  LaneData data = lane_data(timelines);
  for (size_t row = input.timelines.size(); row < timelines.size(); ++row)
    data.header["lanes"][row]["sums"] = true;

  std::string page = head(page_title(plan));
  page += html_paragraph("muted", fmt::format("{}, weights {}, {} of {} per step",
                                              plural(plan.num_workers(), "worker"), to_string(plan.weights),
                                              plural(plan.micro_batches, "micro-batch"),
                                              plural(plan.micro_batch_size, "sample")));
  if (view.bottleneck.time_ns > 0)
    page += html_paragraph(
        "accent", fmt::format("Slowest part: {}, per micro-batch {}", view.bottleneck_name(),
                              duration_text(view.bottleneck.time_ns)));
  for (const std::string& note : input.notes) page += html_paragraph("accent", note);
  if (const std::string note = history_note(input); !note.empty())
    page += html_paragraph("accent", note);
  page += key_numbers_section(input, view) + timeline_section(input) + memory_section(input) +
          differences_section(input) + history_section(input);
  page += "<h2>Plan</h2>\n<div class=\"scroll picture\">\n" + plan_svg(plan) + "</div>\n";
  page += strategies_section(view) + report_notes(plan);
  page += "<div id=\"tooltip\" hidden></div>\n";
  page += fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n",
                      script_json(page_data(input, view, data)));
  page += fmt::format("<script type=\"text/plain\" id=\"actions\">{}</script>\n",
                      base64(deflated(data.bytes)));
  return page + fmt::format("<script>{}</script>\n</body>\n</html>\n", page_script());
}

}  // namespace penstock::report
