#include "penstock/report/page/curve_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/printable.h"

namespace penstock::report {

namespace {

constexpr double kWidth = 620;
constexpr double kHeight = 190;
constexpr double kLeft = 58, kRight = 14, kTop = 12, kBottom = 34;
constexpr size_t kMostStretches = 750;
constexpr double kLargest = 1e300;  // differences of larger numbers are not finite

struct Range {
  double least = INFINITY;
  double most = -INFINITY;

  void include(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  double size() const { return most > least ? most - least : 1; }
};

// 1, 2 or 5 times a power of ten, so that at most `most_ticks` steps fit into `range`; 1 when the
// range is none.
double round_step(double range, int most_ticks) {
  if (!(range > 0) || !std::isfinite(range)) return 1;
  const double least = range / std::max(1, most_ticks);
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// The number with the digits that a step of that size needs: 0.25 of steps of 0.05 is "0.25", 3 of
// steps of 1 is "3".
std::string step_label(double value, double step) {
  if (std::fabs(value) < step * 1e-6) return "0";
  if (std::fabs(value) >= 1e6 || step < 1e-5) return fmt::format("{:.3g}", value);
  return fmt::format("{:.{}f}", value,
                     std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9))));
}

std::string shown(double value, double step, bool percent) {
  return percent ? step_label(100 * value, 100 * step) + " %" : step_label(value, step);
}

}  // namespace

std::vector<CurveChart::Point> CurveChart::thinned(const std::vector<double>& xs,
                                                   const std::vector<double>& ys) {
  const size_t count = std::min(xs.size(), ys.size());
  const size_t stretch = std::max<size_t>(1, (count + kMostStretches - 1) / kMostStretches);
  const auto is_good = [&](size_t k) {
    return std::fabs(xs[k]) < kLargest && std::fabs(ys[k]) < kLargest;
  };
  struct Place {
    size_t at = 0;
    // points before it that are not good: two places with as many have no gap between them
    size_t bad_before = 0;
  };
  std::vector<Point> points;
  size_t bad = 0;
  size_t bad_before_last = 0;  // before the point drawn last
  const auto draw = [&](const Place& place) {
    points.push_back(
        {xs[place.at], ys[place.at], !points.empty() && place.bad_before == bad_before_last});
    bad_before_last = place.bad_before;
  };
  for (size_t begin = 0; begin < count; begin += stretch) {
    const size_t end = std::min(count, begin + stretch);
    Place low{end, 0}, high{end, 0};
    for (size_t k = begin; k < end; ++k) {
      if (!is_good(k)) {
        ++bad;
        continue;
      }
      if (low.at == end || ys[k] < ys[low.at]) low = {k, bad};
      if (high.at == end || ys[k] > ys[high.at]) high = {k, bad};
    }
    if (low.at == end) continue;
    draw(low.at < high.at ? low : high);
    if (low.at != high.at) draw(low.at < high.at ? high : low);
  }
  return points;
}

void CurveChart::add(std::string name, const std::vector<double>& xs,
                     const std::vector<double>& ys) {
  std::vector<Point> points = thinned(xs, ys);
  if (points.empty()) return;
  curves_.push_back({std::move(name), std::move(points)});
  is_thinned_ = is_thinned_ || std::min(xs.size(), ys.size()) > kMostStretches;
}

template <class Px, class Py>
std::string CurveChart::drawn(const Curve& curve, size_t index, const Px& px, const Py& py) {
  const std::vector<Point>& points = curve.points;
  std::string numbers;
  // Steps are whole and may be large; six digits of a loss are more than anyone reads off a curve.
  for (const Point& point : points)
    numbers += fmt::format("{}{:.16g},{:.6g}", numbers.empty() ? "" : " ", point.x, point.y);
  std::string text =
      fmt::format("<g data-name=\"{}\" data-points=\"{}\">\n", escaped(curve.name), numbers);
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin + 1;
    while (end < points.size() && points[end].joined) ++end;
    std::string path;
    for (size_t k = begin; k < end; ++k)
      path +=
          fmt::format("{}{:.1f},{:.1f}", k > begin ? " " : "", px(points[k].x), py(points[k].y));
    if (end - begin == 1 || points.size() <= 40) {
      for (size_t k = begin; k < end; ++k) {
        text +=
            fmt::format("<circle class=\"dot curve-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>",
                        index, px(points[k].x), py(points[k].y));
      }
    }
    if (end - begin > 1)
      text += fmt::format("<polyline class=\"curve curve-{}\" points=\"{}\"/>\n", index, path);
    begin = end;
  }
  return text + "</g>\n";
}

std::string CurveChart::to_string() const {
  if (curves_.empty()) return "";
  Range x, y;
  for (const Curve& curve : curves_) {
    for (const Point& point : curve.points) {
      x.include(point.x);
      y.include(point.y);
    }
  }
  if (y.least > 0 && y.least < 0.6 * y.most) y.least = 0;  // a curve far from zero need not show it
  if (y.most - y.least <= std::max(1e-300, 1e-9 * std::max(std::fabs(y.least), std::fabs(y.most))))
    y = {y.least - 0.5 * std::max(1e-12, std::fabs(y.least)),
         y.least + 0.5 * std::max(1e-12, std::fabs(y.least))};
  const double step = round_step(y.size(), 5);
  y.least = std::floor(y.least / step + 1e-9) * step;
  y.most = std::ceil(y.most / step - 1e-9) * step;
  const auto px = [&](double value) {
    return kLeft +
           (kWidth - kLeft - kRight) * (x.most > x.least ? (value - x.least) / x.size() : 0.5);
  };
  const auto py = [&](double value) {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * (value - y.least) / y.size();
  };

  std::string text = fmt::format(
      "<figure class=\"chart\" data-x=\"{}\" data-x0=\"{:.17g}\" data-x1=\"{:.17g}\" "
      "data-reach=\"{:.17g}\" data-percent=\"{}\">\n"
      "<figcaption>{}",
      escaped(x_name_), x.least, x.most,
      is_thinned_ ? (x.most - x.least) / static_cast<double>(kMostStretches) : 0.0,
      unit_ == Unit::Percent ? 1 : 0, escaped(title_));
  if (curves_.size() > 1) {
    for (size_t c = 0; c < curves_.size(); ++c)
      text += fmt::format(" <span class=\"key curve-{}\">{}</span>", c, escaped(curves_[c].name));
  }
  text +=
      fmt::format("</figcaption>\n<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\">\n",
                  kWidth, kHeight, escaped(title_));
  const int y_steps = static_cast<int>(std::lround(y.size() / step));
  for (int n = 0; n <= y_steps; ++n) {
    const double value = y.least + n * step;
    text += fmt::format(
        "<path class=\"grid\" d=\"M{0} {1:.1f}H{2}\"/><text class=\"tick\" x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5}</text>\n",
        kLeft, py(value), kWidth - kRight, kLeft - 6, py(value) + 4,
        shown(value, step, unit_ == Unit::Percent));
  }
  const double x_step = std::max(1.0, round_step(x.size(), 8));
  const double first_x = std::ceil(x.least / x_step - 1e-9) * x_step;
  for (int n = 0; first_x + n * x_step <= x.most + x_step * 1e-9 && n < 20; ++n) {
    const double value = first_x + n * x_step;
    text +=
        fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                    px(value), kHeight - kBottom + 16, step_label(value, x_step));
  }
  text += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
                      kWidth - kRight, kHeight - 3, escaped(x_name_));
  for (size_t c = 0; c < curves_.size(); ++c) text += drawn(curves_[c], c, px, py);
  return text + "</svg>\n</figure>\n";
}

}  // namespace penstock::report
