#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "penstock/plan/sum_wait.h"
#include "penstock/report/plan/plan_picture.h"
#include "penstock/report/text/text.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

constexpr size_t kColumns = 4;
constexpr double kLinkGap = 96;
constexpr double kRowGap = 64;
constexpr double kWidestCard = 380;
constexpr double kPadding = 12;
constexpr double kStackStep = 4;
constexpr int kMostBehind = 3;
constexpr size_t kMostSkips = 3;

// Where the cards are and which links leave them.
struct Cards {
  size_t columns = 1;
  double width = 0;
  double height = 0;
  double top = 0;
  bool has_places = false;
  bool has_recompute = false;
  size_t skip_lines = 0;

  Box card(size_t s) const {
    const size_t row = s / columns;
    return {kPictureMargin + static_cast<double>(s % columns) * (width + kLinkGap),
            top + kMostBehind * kStackStep + static_cast<double>(row) * (height + kRowGap), width,
            height};
  }
};

// How far the boxes of other replicas stick out above and to the right.
double stack_height(const plan::Stage& stage) {
  return kStackStep * std::clamp(stage.replicas - 1, 0, kMostBehind);
}

std::vector<size_t> skips_of(const PlanView& view, size_t s) {
  std::vector<size_t> skips;
  for (size_t l = 0; l < view.links.size(); ++l) {
    if (view.links[l].is_skip && view.plan.links[l].from.index() == s) skips.push_back(l);
  }
  return skips;
}

Cards arrange(const PlanView& view, double top) {
  Cards cards;
  cards.top = top;
  cards.columns = std::max<size_t>(1, std::min(view.stages.size(), kColumns));
  const auto gaps = static_cast<double>(cards.columns - 1);
  cards.width = std::min(kWidestCard,
                         (kPictureContent - gaps * kLinkGap) / static_cast<double>(cards.columns));
  for (size_t s = 0; s < view.stages.size(); ++s) {
    cards.has_places = cards.has_places || !view.stages[s].where.empty();
    cards.has_recompute = cards.has_recompute || view.plan.stages[s].recompute;
    cards.skip_lines =
        std::max(cards.skip_lines, std::min(skips_of(view, s).size(), kMostSkips + 1));
  }
  cards.height = 144 + (cards.has_places ? 16 : 0) + (cards.has_recompute ? 16 : 0) +
                 16 * static_cast<double>(cards.skip_lines);
  return cards;
}

void draw_memory(Svg& svg, const Box& box, const plan::Stage& stage,
                 std::optional<int64_t> limit_bytes) {
  const std::string used = format_bytes(stage.memory_bytes);
  if (limit_bytes) {
    const double share = std::clamp(
        static_cast<double>(stage.memory_bytes) / static_cast<double>(*limit_bytes), 0.0, 1.0);
    svg.rect({box.x, box.y, box.width, 6}, "track", 3);
    svg.rect({box.x, box.y, share * box.width, 6}, "memory", 3);
  } else {
    svg.line(box.x, box.y + 3, box.right(), box.y + 3, "rule");
  }
  const std::string text = limit_bytes
                               ? fmt::format("memory {} of {}", used, format_bytes(*limit_bytes))
                               : fmt::format("memory {}", used);
  svg.text(box.x, box.y + 21, "muted", fitted(text, box.width, "muted"));
}

void draw_skips(Svg& svg, const PlanView& view, size_t s, const Box& box) {
  const std::vector<size_t> skips = skips_of(view, s);
  double y = box.y;
  for (size_t k = 0; k < std::min(skips.size(), kMostSkips); ++k, y += 16) {
    const bool hot = view.bottleneck.is_link(skips[k]);
    const std::string_view style = hot ? "accent" : "muted";
    const std::vector<std::string> labels = link_labels(view, skips[k]);
    const std::string to = fmt::format("-> {}", view.plan.links[skips[k]].to.value);
    const std::string text =
        hot ? fmt::format("{}, slowest: {}", to, labels.size() > 1 ? labels[1] : labels[0])
            : fmt::format("{}: {}", to, fmt::join(labels, ", "));
    svg.text(box.x, y, style, fitted(text, box.width, style));
  }
  if (skips.size() > kMostSkips)
    svg.text(box.x, y, "muted", fmt::format("and to {} more stages", skips.size() - kMostSkips));
}

std::string tooltip(const PlanView& view, size_t s) {
  constexpr size_t kMostNames = 100;
  const plan::Stage& stage = view.plan.stages[s];
  std::string text = fmt::format(
      "stage {}: forward {}, backward {}, {}synchronisation {}, step {}, weights {}; ", s,
      format_duration(stage.forward_ns), format_duration(stage.backward_ns),
      stage.recompute ? fmt::format("recomputation {}, ", format_duration(stage.forward_ns)) : "",
      plan::sum_processor_ns(stage) > 0
          ? fmt::format("{} and {} of processor time", format_duration(stage.sync_ns),
                        format_duration(plan::sum_processor_ns(stage)))
          : format_duration(stage.sync_ns),
      format_duration(stage.step_ns), format_bytes(stage.weight_bytes));
  if (stage.tensor > 1)
    text += fmt::format("each of {} members sends {} to its team; ", stage.tensor,
                        format_bytes(stage.team_bytes));
  for (size_t k = 0; k < std::min(stage.layers.size(), kMostNames); ++k) {
    text += fmt::format("{}{}", k == 0 ? "" : ", ", shortened(stage.layers[k], 60));
  }
  if (stage.layers.size() > kMostNames)
    text += fmt::format(", and {} more", stage.layers.size() - kMostNames);
  return text;
}

void draw_card(Svg& svg, const PlanView& view, const Cards& cards, size_t s) {
  const plan::Stage& stage = view.plan.stages[s];
  const StageView& seen = view.stages[s];
  const bool hot = view.bottleneck.is_stage(s);
  const Box box = cards.card(s);
  const double width = box.width - 2 * kPadding;
  svg.open(tooltip(view, s));
  for (double shift = stack_height(stage); shift > 0; shift -= kStackStep) {
    svg.rect({box.x + shift, box.y - shift, box.width, box.height}, hot ? "hot-stack" : "stack", 6);
  }
  svg.rect(box, hot ? "hot" : "card", 6);
  const double x = box.x + kPadding;
  double y = box.y + 22;
  svg.text(x, y, "name", fmt::format("stage {}", s));
  if (hot) svg.pill(box.right() - kPadding, y, "slowest");
  svg.text(x, y += 20, "body",
           fitted(width, "body", 20, [&](size_t most) { return layers_text(stage.layers, most); }));
  svg.text(x, y += 17, "muted", fitted(replicas_text(stage, seen), width, "muted"));
  if (cards.has_places) svg.text(x, y += 16, "muted", fitted(seen.where, width, "muted"));
  y += 10;
  draw_time_bar(svg, {x, y, width, 14}, seen, view.bottleneck.time_ns);
  svg.text(x, y += 30, hot ? "accent" : "body",
           fmt::format("{} per micro-batch", duration_text(seen.time_ns())));
  if (cards.has_recompute) {
    y += 16;
    if (stage.recompute) svg.text(x, y, "muted", "recomputes activations");
  }
  draw_memory(svg, {x, y + 10, width, 6}, stage, seen.memory_limit_bytes);
  draw_skips(svg, view, s, {x, y + 48, width, 0});
  svg.close();
}

std::optional<size_t> link_to_next(const PlanView& view, size_t s) {
  for (size_t l = 0; l < view.links.size(); ++l) {
    if (!view.links[l].is_skip && view.plan.links[l].from.index() == s) return l;
  }
  return std::nullopt;
}

// The arrow to the next card in the row, labels above and below it.
void draw_link(Svg& svg, const PlanView& view, const Cards& cards, size_t s, size_t l) {
  const Box from = cards.card(s);
  const Box to = cards.card(s + 1);
  const bool hot = view.bottleneck.is_link(l);
  const double begin = from.right() + stack_height(view.plan.stages[s]);
  const double y = from.y + 80;
  const double middle = (begin + to.x) / 2;
  svg.arrow(fmt::format("M{:.1f} {:.1f}H{:.1f}", begin + 4, y, to.x - 4), hot);
  const std::vector<std::string> labels = link_labels(view, l);
  if (hot) svg.pill(middle + 33, y - 26, "slowest");
  for (size_t k = 0; k < labels.size(); ++k) {
    const double at = k == 0 ? y - 8 : y + 4 + 14 * static_cast<double>(k);
    const std::string_view style = hot && k <= 1 ? "accent" : "small";
    svg.text(middle, at, style, fitted(labels[k], to.x - begin - 4, style), Anchor::Middle);
  }
}

// From below the last card of a row to above the first of the next one, label on the way.
void draw_turn(Svg& svg, const PlanView& view, const Cards& cards, size_t s, size_t l) {
  const Box from = cards.card(s);
  const Box to = cards.card(s + 1);
  const bool hot = view.bottleneck.is_link(l);
  const double x1 = from.x + from.width / 2;
  const double x2 = to.x + to.width / 2;
  const double y = from.bottom() + 30;
  svg.arrow(fmt::format("M{:.1f} {:.1f}V{:.1f}H{:.1f}V{:.1f}", x1, from.bottom() + 3, y, x2,
                        to.y - stack_height(view.plan.stages[s + 1]) - 3),
            hot);
  const std::string label =
      fmt::format("{}{}", hot ? "slowest: " : "", fmt::join(link_labels(view, l), ", "));
  svg.text((x1 + x2) / 2, y - 7, hot ? "accent" : "small", label, Anchor::Middle);
}

}  // namespace

std::string replicas_text(const plan::Stage& stage, const StageView& seen) {
  if (stage.tensor > 1) {
    const std::string teams =
        stage.replicas == 1 ? "team" : fmt::format("{} teams", stage.replicas);
    return fmt::format("{} of {}{}", teams, stage.tensor,
                       seen.workers == "-" ? "" : " on workers " + seen.workers);
  }
  const std::string on =
      seen.workers == "-" ? ""
                          : fmt::format("{}{}", stage.replicas == 1 ? "" : "s", " " + seen.workers);
  if (stage.replicas == 1) return on.empty() ? "1 replica" : "worker" + on;
  return on.empty() ? plural(stage.replicas, "replica")
                    : fmt::format("{} replicas on worker{}", stage.replicas, on);
}

std::vector<std::string> link_labels(const PlanView& view, size_t link) {
  const LinkView& seen = view.links[link];
  const plan::Link& shown = view.plan.links[link];
  std::vector<std::string> labels = {
      shown.coding.is_exact() ? format_bytes(shown.bytes) : bytes_text(shown, view.plan.precision)};
  if (seen.by_reference && seen.time_ns <= 0) {
    labels.emplace_back("by reference");
  } else {
    if (seen.level != "-") labels.push_back(duration_text(seen.time_ns));
    if (seen.level != "-") labels.push_back(seen.level);
  }
  return labels;
}

double draw_cards(Svg& svg, const PlanView& view, double top) {
  const Cards cards = arrange(view, top);
  for (size_t s = 0; s < view.stages.size(); ++s) draw_card(svg, view, cards, s);
  for (size_t s = 0; s + 1 < view.stages.size(); ++s) {
    const std::optional<size_t> link = link_to_next(view, s);
    if (!link) continue;
    if ((s + 1) % cards.columns == 0) {
      draw_turn(svg, view, cards, s, *link);
    } else {
      draw_link(svg, view, cards, s, *link);
    }
  }
  return view.stages.empty() ? top : cards.card(view.stages.size() - 1).bottom();
}

}  // namespace penstock::report
