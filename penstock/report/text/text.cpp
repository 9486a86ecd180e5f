#include "penstock/report/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/units.h"

namespace penstock::report {

namespace {

int64_t rounded(double value) { return value > 0 ? nearest(value) : 0; }

}  // namespace
std::string layers_text(const std::vector<std::string>& layers, size_t most) {
  if (layers.empty()) return "-";
  if (layers.size() == 1) return shortened(layers.front(), most);
  constexpr size_t kRoomForWord = 34;
  const std::string count =
      fmt::format(" ({}{})", layers.size(), most >= kRoomForWord ? " layers" : "");
  const size_t names = most - std::min(most - 8, count.size() + 4);
  const size_t first = display_width(printable(layers.front()));
  const size_t last = display_width(printable(layers.back()));
  // A short name leaves more room for the other one.
  const size_t front =
      std::min(first, std::max({names / 2, names - std::min(names, last), size_t{4}}));
  const size_t back = std::max<size_t>(4, names - std::min(names, front));
  return fmt::format("{} .. {}{}", shortened(layers.front(), std::max<size_t>(front, 4)),
                     shortened(layers.back(), back), count);
}

std::string short_config(std::string_view config, size_t most) {
  constexpr size_t kRun = 4;
  if (config.find(' ') != std::string_view::npos) return shortened(config, most);
  std::vector<std::string_view> counts;
  for (size_t begin = 0; begin <= config.size() && !config.empty();) {
    const size_t end = std::min(config.find('-', begin), config.size());
    counts.push_back(config.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string text;
  for (size_t begin = 0; begin < counts.size() && text.size() <= most;) {
    size_t end = begin + 1;
    while (end < counts.size() && counts[end] == counts[begin]) ++end;
    if (end - begin < kRun) end = begin + 1;
    text += fmt::format("{}{}", text.empty() ? "" : "-", counts[begin]);
    if (end - begin > 1) text += fmt::format("x{}", end - begin);
    begin = end;
  }
  if (text.size() > most) return plural(static_cast<int64_t>(counts.size()), "stage");
  return text.empty() ? "-" : printable(text);
}

std::string duration_text(double ns) {
  constexpr double kLongest = 3.6e12 * 10'000;
  return ns < kLongest || std::isnan(ns) ? format_duration(rounded(ns)) : "over 9999 h";
}
std::string bytes_text(double bytes) { return format_bytes(rounded(bytes)); }

std::string time_or_dash(double ns) { return ns > 0 ? duration_text(ns) : "-"; }
std::string size_or_dash(int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; }

std::string percent_text(double share) {
  if (!std::isfinite(share)) return "-";
  const double percent = 100 * share;
  if (percent != 0 && std::fabs(percent) < 9.95) return fmt::format("{:.1f} %", percent);
  return std::fabs(percent) > 1e6 ? fmt::format("{:.1e} %", percent)
                                  : fmt::format("{:.0f} %", percent);
}

std::string ratio_text(double value, double base) {
  if (!(base > 0) || !std::isfinite(value)) return "-";
  return value / base >= 1000 ? fmt::format("{:.3g}x", value / base)
                              : fmt::format("{:.2f}x", value / base);
}

}  // namespace penstock::report
