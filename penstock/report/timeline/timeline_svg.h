// A timeline as a picture for papers.
//
//   write_file_atomic("timeline.svg", timeline_svg({&predicted, &measured}));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/timeline.h"

namespace penstock::report {

inline constexpr size_t kMaxPictureRows = 512;

/// One row per worker and timeline, those of a worker below each other; on white, in a few colours
/// that differ in lightness too, so that it can be printed grey: F, W, R, B (also I), waiting left
/// blank. Worker labels, a legend of what occurs, an axis with units, and the action's name where
/// its bar has room. Several stages of a worker are told apart by shade. No scripts, no style
/// sheet, plain shapes: for LaTeX through any converter. Actions narrower than half a pixel join
/// their neighbours of the same kind. The same input gives the same bytes. Throws ConfigError for
/// more than kMaxPictureRows rows. O(actions), and at most about 2,000 bars a row.
std::string timeline_svg(const std::vector<const schedule::Timeline*>& timelines,
                         std::string_view title = "");

}  // namespace penstock::report
