#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/report/plan/plan_picture.h"
#include "penstock/report/text/text.h"
#include "penstock/util/printable.h"
#include "penstock/util/units.h"

namespace penstock::report {

namespace {

constexpr size_t kMostBars = 64;
constexpr double kRow = 22;

// Columns of the list of bars, left ends.
constexpr double kName = kPictureMargin;
constexpr double kLayers = kName + 150;
constexpr double kBar = kLayers + 220;
constexpr double kBarWidth = 260;
constexpr double kTime = kBar + kBarWidth + 8;
constexpr double kReplicas = kTime + 80;
constexpr double kMemory = kReplicas + 96;
constexpr double kLink = kMemory + 76;

// Stages [begin, end) drawn as one bar: that of the slowest of them.
struct Group {
  size_t begin = 0;
  size_t end = 0;
  size_t slowest = 0;
  size_t num_layers = 0;
  int64_t replicas = 0;
  int64_t memory_bytes = 0;
  size_t slowest_link = SIZE_MAX;  ///< of those that leave its stages
};

std::vector<Group> groups_of(const PlanView& view) {
  const size_t total = view.stages.size();
  const size_t each = (total + kMostBars - 1) / kMostBars;
  std::vector<Group> groups;
  for (size_t begin = 0; begin < total; begin += each) {
    Group group{.begin = begin, .end = std::min(total, begin + each), .slowest = begin};
    for (size_t s = group.begin; s < group.end; ++s) {
      if (view.stages[s].time_ns() > view.stages[group.slowest].time_ns()) group.slowest = s;
      group.num_layers += view.plan.stages[s].layers.size();
      group.replicas += view.plan.stages[s].replicas;
      group.memory_bytes = std::max(group.memory_bytes, view.plan.stages[s].memory_bytes);
    }
    groups.push_back(group);
  }
  for (size_t l = 0; l < view.links.size(); ++l) {
    const auto from = static_cast<size_t>(std::max(view.plan.links[l].from.value, 0));
    if (from >= total) continue;
    Group& group = groups[from / each];
    if (group.slowest_link == SIZE_MAX ||
        view.links[l].time_ns > view.links[group.slowest_link].time_ns)
      group.slowest_link = l;
  }
  return groups;
}

std::string layers_of(const PlanView& view, const Group& group) {
  const std::vector<std::string>& first = view.plan.stages[group.begin].layers;
  const std::vector<std::string>& last = view.plan.stages[group.end - 1].layers;
  return fitted(kBar - kLayers - 10, "body", 20, [&](size_t most) {
    if (group.end - group.begin == 1) return layers_text(first, most);
    if (first.empty() || last.empty()) return std::string("-");
    return fmt::format("{} .. {}", shortened(first.front(), most / 2 - 2),
                       shortened(last.back(), most / 2 - 2));
  });
}

void draw_titles(Svg& svg, double y, bool grouped) {
  svg.text(kName, y, "small", grouped ? "stages" : "stage");
  svg.text(kLayers, y, "small", "layers");
  svg.text(kBar, y, "small",
           grouped ? "time per micro-batch, of the slowest of them" : "time per micro-batch");
  svg.text(kReplicas, y, "small", grouped ? "workers" : "replicas");
  svg.text(kMemory, y, "small", "memory");
  svg.text(kLink, y, "small", grouped ? "slowest link" : "to the next stages");
}

void draw_bar(Svg& svg, const PlanView& view, const Group& group, double y) {
  bool hot = false;
  for (size_t s = group.begin; s < group.end; ++s) hot = hot || view.bottleneck.is_stage(s);
  const bool single = group.end - group.begin == 1;
  const StageView& slowest = view.stages[group.slowest];
  const std::string name =
      single ? fmt::to_string(group.begin) : fmt::format("{}-{}", group.begin, group.end - 1);
  if (hot) svg.rect({kName - 8, y - 15, kPictureContent + 16, kRow}, "hot", 4);
  svg.text(kName, y, hot ? "accent" : "body", hot ? name + " slowest" : name);
  svg.text(kLayers, y, "body", layers_of(view, group));
  draw_time_bar(svg, {kBar, y - 11, kBarWidth, 14}, slowest, view.bottleneck.time_ns);
  svg.text(kTime, y, hot ? "accent" : "body", duration_text(slowest.time_ns()));
  const bool recompute = single && view.plan.stages[group.begin].recompute;
  svg.text(kReplicas, y, "muted",
           fmt::format("{}{}", group.replicas, recompute ? ", recomputes" : ""));
  svg.text(kMemory, y, "muted", group.memory_bytes > 0 ? format_bytes(group.memory_bytes) : "-");
  if (group.slowest_link == SIZE_MAX) return;
  const bool hot_link = view.bottleneck.is_link(group.slowest_link);
  std::vector<std::string> labels = link_labels(view, group.slowest_link);
  if (hot_link && labels.size() > 2) labels.pop_back();
  const std::string_view style = hot_link ? "accent" : "muted";
  const std::string label =
      fmt::format("{}{}", hot_link ? "slowest: " : "", fmt::join(labels, ", "));
  svg.text(kLink, y, style, fitted(label, kPictureWidth - kPictureMargin - kLink, style));
}

}  // namespace

double draw_bars(Svg& svg, const PlanView& view, double top) {
  const std::vector<Group> groups = groups_of(view);
  draw_titles(svg, top + 12, view.stages.size() > kMostBars);
  svg.line(kName, top + 18, kPictureWidth - kPictureMargin, top + 18, "rule");
  double y = top + 36;
  for (const Group& group : groups) {
    draw_bar(svg, view, group, y);
    y += kRow;
  }
  return y - 10;
}

}  // namespace penstock::report
