// The picture of a plan on its page, and the parts of it from top to bottom; each part draws from
// `top` down and returns where it ended. Internal to the reports.
//
//   page += plan_picture(PlanView(plan));
#pragma once

#include <string>
#include <vector>

#include "penstock/report/plan/plan_view.h"
#include "penstock/report/text/svg.h"

namespace penstock::report {

inline constexpr double kPictureWidth = 1160;
inline constexpr double kPictureMargin = 24;
inline constexpr double kPictureContent = kPictureWidth - 2 * kPictureMargin;

/// Plans of more stages have no cards: the page's table lists their stages.
inline constexpr size_t kMostCards = 32;

/// A self-contained SVG document: stages with layers, time, memory and replicas, links with bytes
/// and time, where the stages run, the slowest part marked. Light or dark as the viewer prefers.
/// Its size is bounded. Names are escaped. O(stages + links + levels).
std::string plan_picture(const PlanView& view);

/// A stage's time per micro-batch in its four parts, `full_ns` filling the box.
void draw_time_bar(Svg& svg, const Box& box, const StageView& stage, double full_ns);
/// What the colours of the time bars mean.
void draw_legend(Svg& svg, double y, double full_ns);

double draw_cards(Svg& svg, const PlanView& view, double top);
/// At most 256 workers in the frames of their servers. Nothing where there are more, or where the
/// plan does not fit its cluster.
double draw_places(Svg& svg, const PlanView& view, double top);

/// "3 replicas on workers 0-2".
std::string replicas_text(const plan::Stage& stage, const StageView& seen);
/// "6.40 MB", "12.3 ms", "rack": of the link, one label a line.
std::vector<std::string> link_labels(const PlanView& view, size_t link);

}  // namespace penstock::report
