// The parts of a plan's picture, from top to bottom; each draws from `top` down and returns where
// it ended. Internal to the reports.
#pragma once

#include <string>
#include <vector>

#include "penstock/report/plan/plan_view.h"
#include "penstock/report/text/svg.h"

namespace penstock::report {

inline constexpr double kPictureWidth = 1160;
inline constexpr double kPictureMargin = 24;
inline constexpr double kPictureContent = kPictureWidth - 2 * kPictureMargin;

/// Plans of at most this many stages are drawn as cards with arrows between them, longer ones as
/// bars below each other.
inline constexpr size_t kMostCards = 16;

/// A stage's time per micro-batch in its four parts, `full_ns` filling the box.
void draw_time_bar(Svg& svg, const Box& box, const StageView& stage, double full_ns);
/// What the colours of the time bars mean.
void draw_legend(Svg& svg, double y, double full_ns);

double draw_cards(Svg& svg, const PlanView& view, double top);
/// At most 64 bars: neighbours share one when there are more stages.
double draw_bars(Svg& svg, const PlanView& view, double top);
/// Workers in the frames of their servers, or as one strip when they are many. Nothing when the
/// plan does not fit its cluster.
double draw_places(Svg& svg, const PlanView& view, double top);

/// "3 replicas on workers 0-2".
std::string replicas_text(const plan::Stage& stage, const StageView& seen);
/// "6.40 MB", "12.3 ms", "rack": of the link, one label a line.
std::vector<std::string> link_labels(const PlanView& view, size_t link);

}  // namespace penstock::report
