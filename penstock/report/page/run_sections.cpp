#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "penstock/report/page/curve_chart.h"
#include "penstock/report/page/sections.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/report/timeline/lane_data.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/timeline_difference.h"
#include "penstock/util/text/printable.h"

namespace penstock::report {

using schedule::Op;
using schedule::Timeline;
using schedule::TimelineEvent;

namespace {

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

std::string or_dash(double ns) { return ns >= 0.5 ? duration_text(ns) : "-"; }
std::string signed_duration(double ns) {
  return std::fabs(ns) < 0.5 ? "-" : (ns < 0 ? "-" : "+") + duration_text(std::fabs(ns));
}

template <class Rows, class Get>
std::vector<double> column(const Rows& rows, Get get) {
  std::vector<double> values;
  values.reserve(rows.size());
  for (const auto& row : rows) values.push_back(static_cast<double>(get(row)));
  return values;
}

}  // namespace

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
         "</canvas>\n<p class=\"muted\">A long run opens on its first steps; \"all\" shows the "
         "rest. "
         "Wheel zooms, drag pans, Shift+wheel pans, Alt+wheel "
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

std::string memory_account_section(const ReportInput& input) {
  if (!input.history || input.history->memory.empty()) return "";
  return "<h2>Memory at its peak</h2>\n" +
         html_paragraph("muted",
                        "Measured: the tensors of each worker by kind when they took most, beside "
                        "the plan's; then all that each process held.") +
         memory_bars(input.history->memory);
}

/// "2", or of a team "2.1": member 1.
std::string stage_text(const plan::Plan& plan, StageId stage) {
  const schedule::TeamPlace place =
      schedule::place_in_team({.replicas = {}, .teams = plan.teams()}, stage);
  return place.size == 1 ? fmt::to_string(place.whole.value)
                         : fmt::format("{}.{}", place.whole.value, place.member);
}

std::string differences_section(const ReportInput& input) {
  if (input.timelines.size() < 2) return "";
  const Timeline& predicted = input.timelines[0];
  const Timeline& measured = input.timelines[1];
  const schedule::TimelineComparison comparison = schedule::compare(predicted, measured);
  Table table({{"action", Align::Left},
               {"stage"},
               {"count"},
               {"predicted, each"},
               {"measured, each"},
               {"difference, each"},
               {""},
               {"waiting, predicted"},
               {"waiting, measured"},
               {"difference, in all"}});
  const size_t shown = std::min<size_t>(comparison.rows.size(), 16);
  for (size_t r = 0; r < shown; ++r) {
    const schedule::TimelineDifference& row = comparison.rows[r];
    const auto count = static_cast<double>(row.count);
    table.add({std::string(schedule::to_string(row.op)), stage_text(input.plan, row.stage),
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
         "<div id=\"differences\">" + table.html() + "</div>\n";
}

Json history_charts(const ReportInput& input) {
  if (!input.history) return Json::array();
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
  Json charts = Json::array();
  for (const CurveChart* chart : {&loss, &accuracy, &rate, &norm, &epoch_loss}) {
    if (chart->num_curves() == 0 || (chart == &epoch_loss && loss.num_curves() > 0)) continue;
    charts.push_back(chart->to_json());
  }
  return charts;
}

std::string history_section(const ReportInput& input, const Json& charts) {
  if (!input.history) return "";
  if (charts.empty())
    return "<h2>Training</h2>\n" + html_paragraph("muted", "The history holds no finite number.");
  return "<h2>Training</h2>\n<div class=\"charts\" id=\"charts\"></div>\n";
}

}  // namespace penstock::report
