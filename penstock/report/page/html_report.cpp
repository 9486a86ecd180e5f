#include "penstock/report/page/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/report/page/page_assets.h"
#include "penstock/report/page/sections.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/report/timeline/lane_data.h"
#include "penstock/schedule/lane_names.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"

namespace penstock::report {

using schedule::Timeline;
using schedule::TimelineEvent;

namespace {

/// By stage of the timelines: the plan's stage, whose members are stages of their own.
std::vector<size_t> whole_stages(const plan::Plan& plan) {
  constexpr auto kMost = static_cast<int>(kMaxReportWorkers);
  std::vector<size_t> whole;
  for (size_t s = 0; s < plan.stages.size(); ++s)
    whole.insert(whole.end(), static_cast<size_t>(std::clamp(plan.stages[s].tensor, 1, kMost)), s);
  return whole;
}

void check(const ReportInput& input) {
  const size_t num_stages = whole_stages(input.plan).size();
  if (const std::string trouble = too_large_to_draw(input.timelines); !trouble.empty())
    throw ConfigError(trouble);
  for (const Timeline& timeline : input.timelines) {
    for (size_t w = 0; w < timeline.workers.size(); ++w) {
      for (const TimelineEvent& event : timeline.workers[w]) {
        if (event.action.stage.value >= 0 && event.action.stage.index() < num_stages) continue;
        throw ConfigError(
            fmt::format("worker {} of the {} timeline runs stage {}, the plan has {}: they do not "
                        "belong together",
                        w, shortened(timeline.source, 40), event.action.stage.value,
                        plural(static_cast<int64_t>(num_stages), "stage")));
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

/// "2", or of a team "2.1": member 1.
std::string stage_name(const plan::Plan& plan, size_t stage, int member) {
  return plan.stages[stage].tensor == 1 ? fmt::to_string(stage)
                                        : fmt::format("{}.{}", stage, member);
}

/// As the timelines number them: of a team the first member.
std::vector<size_t> slowest_stages(const plan::Plan& plan, const Bottleneck& bottleneck) {
  const std::vector<size_t> slowest = bottleneck.kind == Bottleneck::Kind::Stage
                                          ? std::vector{bottleneck.index}
                                          : bottleneck.stages;
  const std::vector<size_t> whole = whole_stages(plan);
  std::vector<size_t> first;
  for (const size_t s : slowest)
    first.push_back(static_cast<size_t>(std::find(whole.begin(), whole.end(), s) - whole.begin()));
  return first;
}

Json page_data(const ReportInput& input, const PlanView& view, LaneData& data, Json charts) {
  Json stages = Json::array();
  if (!input.timelines.empty()) {
    std::vector<int64_t> input_bytes(input.plan.stages.size());
    for (const plan::Link& link : input.plan.links) {
      if (link.to.value >= 0 && link.to.index() < input_bytes.size()) {
        input_bytes[link.to.index()] = saturating_add(input_bytes[link.to.index()], link.bytes);
      }
    }
    int member = 0;
    const std::vector<size_t> whole = whole_stages(input.plan);
    for (size_t k = 0; k < whole.size(); ++k) {
      const size_t s = whole[k];
      const plan::Stage& stage = input.plan.stages[s];
      member = k > 0 && whole[k - 1] == s ? member + 1 : 0;
      stages.push_back({{"name", stage_name(input.plan, s, member)},
                        {"layers", layers_text(stage.layers, 48)},
                        {"weight", stage.weight_bytes},
                        {"stash", stage.stash_bytes},
                        {"input", input_bytes[s]}});
    }
  }
  Json document = std::move(data.header);
  document["stages"] = std::move(stages);
  document["optimizer_state_per_weight"] = input.plan.optimizer_state_per_weight;
  document["places"] =
      input.plan.teams().empty() || input.timelines.empty()
          ? Json::array()
          : Json(schedule::lane_names(input.timelines.front(), input.plan.teams()));
  document["slowest_stages"] = slowest_stages(input.plan, view.bottleneck);
  document["charts"] = std::move(charts);
  document["memory_limit_bytes"] = view.least_memory_limit_bytes.value_or(0);
  return document;
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
      "</header>\n<div id=\"trouble\" hidden></div>\n<noscript><p class=\"accent\">This page's "
      "script is switched off: it draws timelines and curves.</p></noscript>\n",
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
  const PlanView view(plan, input.memory_limit_bytes);
  const std::vector<Timeline> sums = rows_of_sums(input);
  std::vector<const Timeline*> timelines;
  for (const Timeline& timeline : input.timelines) timelines.push_back(&timeline);
  for (const Timeline& rows : sums) timelines.push_back(&rows);
  LaneData data = lane_data(timelines);
  for (size_t row = input.timelines.size(); row < timelines.size(); ++row)
    data.header["lanes"][row]["sums"] = true;

  const Json charts = history_charts(input);
  std::string page = head(page_title(plan));
  page +=
      html_paragraph("muted", fmt::format("{}, weights {}, {} of {} per step",
                                          plural(plan.num_workers(), "worker"), plan.weights_text(),
                                          plural(plan.micro_batches, "micro-batch"),
                                          plural(plan.micro_batch_size, "sample")));
  page += headline_section(input);
  if (view.bottleneck.time_ns > 0)
    page += html_paragraph(
        "accent", fmt::format("Slowest part: {}, per micro-batch {}", view.bottleneck_name(),
                              duration_text(view.bottleneck.time_ns)));
  for (const std::string& note : input.notes) page += html_paragraph("accent", note);
  if (const std::string note = history_note(input); !note.empty())
    page += html_paragraph("accent", note);
  page += key_numbers_section(input, view) + timeline_section(input) + memory_section(input) +
          memory_account_section(input) + differences_section(input) +
          history_section(input, charts);
  page += plan_section(view) + strategies_section(view) + changes_section(input.changes) +
          notes_section(plan);
  page += "<div id=\"tooltip\" hidden></div>\n";
  page += fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n",
                      script_json(page_data(input, view, data, charts)));
  page += fmt::format("<script type=\"text/plain\" id=\"actions\">{}</script>\n",
                      base64(deflated(data.bytes)));
  return page + fmt::format("<script>{}</script>\n</body>\n</html>\n", page_script());
}

}  // namespace penstock::report
