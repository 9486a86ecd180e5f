#include "penstock/report/plan/stage_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "penstock/plan/sum_wait.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

constexpr size_t kMostLinks = 4;
constexpr size_t kLayersWidth = 48;

struct TimePart {
  std::string_view style;
  std::string_view name;
  double time_ns = 0;
};

std::array<TimePart, 4> times_of(const StageView& stage) {
  return {{{"forward", "forward", stage.forward_ns},
           {"backward", "backward", stage.backward_ns},
           {"sync", "gradient synchronisation", stage.sync_ns},
           {"step", "optimiser step", stage.step_ns}}};
}

double longest(const PlanView& view) {
  double time_ns = 0;
  for (const StageView& stage : view.stages) time_ns = std::max(time_ns, stage.time_ns());
  for (const LinkView& link : view.links) time_ns = std::max(time_ns, link.time_ns);
  return time_ns;
}

std::string bar_part(std::string_view style, double share) {
  return share > 0.0005 ? fmt::format("<i style=\"width:{:.2f}%;background:var(--{})\"></i>",
                                      100 * std::min(share, 1.0), style)
                        : "";
}

/// One row. `what` and `memory` are HTML.
std::string row(std::string_view kind, const std::string& tip, const std::string& what,
                const std::string& bar, const std::string& time, const std::string& memory) {
  return fmt::format(
      "<div class=\"{}\" title=\"{}\"><span class=\"what\">{}</span><span class=\"track\">{}"
      "</span><b>{}</b><span>{}</span></div>\n",
      kind, escaped(tip), what, bar, escaped(time), memory);
}

std::string slowest_mark(bool is_slowest) { return is_slowest ? " <em>slowest</em>" : ""; }

/// "3 replicas on workers 0-2, server 0".
std::string where_text(const plan::Stage& stage, const StageView& seen) {
  const std::string on = seen.workers == "-" ? "" : seen.workers;
  std::string text;
  if (stage.tensor > 1) {
    const std::string teams =
        stage.replicas == 1 ? "team" : fmt::format("{} teams", stage.replicas);
    text = fmt::format("{} of {}{}", teams, stage.tensor, on.empty() ? "" : " on workers " + on);
  } else if (stage.replicas == 1) {
    text = on.empty() ? "1 replica" : "worker " + on;
  } else {
    text = plural(stage.replicas, "replica") + (on.empty() ? "" : " on workers " + on);
  }
  return seen.where.empty() ? text : text + ", " + seen.where;
}

std::string stage_tip(const plan::Stage& stage) {
  constexpr size_t kMostNames = 100;
  const int64_t processor_ns = plan::sum_processor_ns(stage);
  std::string text = fmt::format(
      "forward {}, backward {}, {}synchronisation {}{}, step {}, weights {}; ",
      format_duration(stage.forward_ns), format_duration(stage.backward_ns),
      stage.recompute ? fmt::format("recomputation {}, ", format_duration(stage.forward_ns)) : "",
      format_duration(stage.sync_ns),
      processor_ns > 0 ? fmt::format(" and {} of processor time", format_duration(processor_ns))
                       : "",
      format_duration(stage.step_ns), format_bytes(stage.weight_bytes));
  if (stage.tensor > 1)
    text += fmt::format("each of {} members sends {} to its team; ", stage.tensor,
                        format_bytes(stage.team_bytes));
  const size_t shown = std::min(stage.layers.size(), kMostNames);
  for (size_t k = 0; k < shown; ++k) text += (k == 0 ? "" : ", ") + shortened(stage.layers[k], 60);
  if (shown < stage.layers.size())
    text += fmt::format(", and {} more", stage.layers.size() - shown);
  return text;
}

std::string memory_cell(const plan::Stage& stage, const StageView& seen) {
  if (stage.memory_bytes <= 0) return "";
  const std::optional<int64_t> limit = seen.memory_limit_bytes;
  if (!limit || *limit <= 0) return escaped(format_bytes(stage.memory_bytes));
  const double share = static_cast<double>(stage.memory_bytes) / static_cast<double>(*limit);
  return escaped(fmt::format("{} of {}", format_bytes(stage.memory_bytes), format_bytes(*limit))) +
         fmt::format("<span class=\"track\">{}</span>",
                     bar_part(share > 1 ? "accent" : "state", share));
}

std::string stage_row(const PlanView& view, size_t s, double full_ns) {
  const plan::Stage& stage = view.plan.stages[s];
  const StageView& seen = view.stages[s];
  const bool is_slowest = view.bottleneck.is_stage(s);
  std::string bar;
  for (const TimePart& part : times_of(seen)) bar += bar_part(part.style, part.time_ns / full_ns);
  const std::string what = fmt::format(
      "<b>stage {}</b>{} {} <small>{}{}</small>", s, slowest_mark(is_slowest),
      escaped(layers_text(stage.layers, kLayersWidth)), escaped(where_text(stage, seen)),
      stage.recompute ? ", recomputes activations" : "");
  return row(is_slowest ? "hot" : "stage", stage_tip(stage), what, bar,
             duration_text(seen.time_ns()), memory_cell(stage, seen));
}

std::string link_row(const PlanView& view, size_t l, double full_ns) {
  const plan::Link& link = view.plan.links[l];
  const LinkView& seen = view.links[l];
  const std::string bytes =
      link.coding.is_exact() ? format_bytes(link.bytes) : bytes_text(link, view.plan.precision);
  const bool is_slowest = view.bottleneck.is_link(l);
  const std::string through = seen.level == "-" ? "" : ", " + seen.level;
  const std::string time = seen.by_reference && seen.time_ns <= 0 ? "by reference"
                           : seen.level == "-"                    ? ""
                                                                  : duration_text(seen.time_ns);
  return row(is_slowest ? "hot" : "link", "there and back, per micro-batch",
             fmt::format("&darr;{} {}", slowest_mark(is_slowest),
                         escaped(fmt::format("{} to stage {}{}", bytes, link.to.value, through))),
             bar_part("message", seen.time_ns / full_ns), time, "");
}

std::string legend(const PlanView& view, double full_ns) {
  std::string keys;
  const auto key = [&keys](std::string_view style, std::string_view name) {
    keys += fmt::format("<span class=\"key\"><i style=\"background:var(--{})\"></i>{}</span>\n",
                        style, name);
  };
  const std::array<TimePart, 4> names = times_of({});
  for (size_t p = 0; p < names.size(); ++p) {
    const bool is_there =
        std::any_of(view.stages.begin(), view.stages.end(),
                    [p](const StageView& stage) { return times_of(stage)[p].time_ns > 0; });
    if (is_there) key(names[p].style, names[p].name);
  }
  if (!view.links.empty()) key("message", "messages");
  return "<p class=\"legend\">" + keys +
         fmt::format("<span class=\"key\">A full bar is {} per micro-batch.</span></p>\n",
                     escaped(duration_text(full_ns)));
}

}  // namespace

std::string stage_bars(const PlanView& view) {
  const double full_ns = longest(view);
  if (!(full_ns > 0)) return "";
  std::vector<std::vector<size_t>> links(view.stages.size());
  for (size_t l = 0; l < view.links.size(); ++l) {
    const int from = view.plan.links[l].from.value;
    if (from >= 0 && static_cast<size_t>(from) < links.size())
      links[static_cast<size_t>(from)].push_back(l);
  }
  std::string page = legend(view, full_ns) + "<div id=\"bars\">\n";
  for (size_t s = 0; s < std::min(view.stages.size(), kMostBars); ++s) {
    page += stage_row(view, s, full_ns);
    for (size_t k = 0; k < std::min(links[s].size(), kMostLinks); ++k)
      page += link_row(view, links[s][k], full_ns);
    if (links[s].size() > kMostLinks)
      page += html_paragraph(
          "muted", fmt::format("... and to {} more stages", links[s].size() - kMostLinks));
  }
  page += "</div>\n";
  if (view.stages.size() > kMostBars)
    page += html_paragraph("muted", fmt::format("... and {} more", view.stages.size() - kMostBars));
  return page;
}

}  // namespace penstock::report
