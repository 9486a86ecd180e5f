#include "penstock/report/timeline/time_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::report {

double round_step(double range, int most_ticks) {
  if (!(range > 0) || !std::isfinite(range)) return 1;
  const double least = range / std::max(1, most_ticks);
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string step_label(double value, double step) {
  if (std::fabs(value) < step * 1e-6) return "0";
  if (std::fabs(value) >= 1e6 || step < 1e-5) return fmt::format("{:.3g}", value);
  return fmt::format("{:.{}f}", value,
                     std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9))));
}

TimeAxis time_axis(double from_ns, double to_ns, int most_ticks) {
  struct Unit {
    std::string_view name;
    double ns;
  };
  constexpr Unit kUnits[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
  const Unit* unit = std::find_if(std::begin(kUnits), std::end(kUnits) - 1,
                                  [&](const Unit& u) { return to_ns >= 2 * u.ns; });
  TimeAxis axis{unit->name, {}};
  const double step = round_step((to_ns - from_ns) / unit->ns, most_ticks);
  for (double k = std::ceil(from_ns / unit->ns / step - 1e-9);
       k * step * unit->ns <= to_ns * (1 + 1e-9); ++k) {
    axis.ticks.push_back({k * step * unit->ns, step_label(k * step, step)});
    if (axis.ticks.size() > static_cast<size_t>(most_ticks) + 1) break;
  }
  return axis;
}

}  // namespace penstock::report
