// Round numbers along an axis. Internal to the reports.
//
//   time_axis(0, 2.5e6, 6);   // ticks at 0, 0.5, 1, ... 2.5 with unit "ms"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::report {

struct TimeTick {
  double ns = 0;
  std::string label;
};
struct TimeAxis {
  std::string_view unit;  ///< "ns", "us", "ms", "s"
  std::vector<TimeTick> ticks;
};

/// 1, 2 or 5 times a power of ten, so that at most `most_ticks` steps fit into `range`; 1 when the
/// range is none.
double round_step(double range, int most_ticks);
/// At most `most_ticks` + 1 ticks from `from_ns` to `to_ns`, in the unit that suits the larger.
TimeAxis time_axis(double from_ns, double to_ns, int most_ticks);
/// The number with the digits that a step of that size needs: 0.25 of steps of 0.05 is "0.25", 3 of
/// steps of 1 is "3".
std::string step_label(double value, double step);

}  // namespace penstock::report
