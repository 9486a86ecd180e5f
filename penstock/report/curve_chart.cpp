#include "penstock/report/curve_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/report/text.h"
#include "penstock/report/time_axis.h"

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

std::string shown(double value, double step, bool percent) {
  return percent ? step_label(100 * value, 100 * step) + " %" : step_label(value, step);
}

}  // namespace

std::vector<CurveChart::Point> CurveChart::thinned(const std::vector<double>& xs, const std::vector<double>& ys) {
  const size_t count = std::min(xs.size(), ys.size());
  const size_t stretch = std::max<size_t>(1, (count + kMostStretches - 1) / kMostStretches);
  const auto is_good = [&](size_t k) { return std::fabs(xs[k]) < kLargest && std::fabs(ys[k]) < kLargest; };
  std::vector<Point> points;
  bool joined = false;
  for (size_t begin = 0; begin < count; begin += stretch) {
    const size_t end = std::min(count, begin + stretch);
    size_t low = end, high = end;
    bool gap = false;
    for (size_t k = begin; k < end; ++k) {
      if (!is_good(k)) {
        gap = true;
        continue;
      }
      if (low == end || ys[k] < ys[low]) low = k;
      if (high == end || ys[k] > ys[high]) high = k;
    }
    if (low != end) {
      const size_t first = std::min(low, high);
      const size_t second = std::max(low, high);
      points.push_back({xs[first], ys[first], joined && !(gap && stretch == 1)});
      if (second != first) points.push_back({xs[second], ys[second], true});
    }
    joined = low != end && !gap;
  }
  return points;
}

void CurveChart::add(std::string name, const std::vector<double>& xs, const std::vector<double>& ys) {
  std::vector<Point> points = thinned(xs, ys);
  if (!points.empty()) curves_.push_back({std::move(name), std::move(points)});
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
    y = {y.least - 0.5 * std::max(1e-12, std::fabs(y.least)), y.least + 0.5 * std::max(1e-12, std::fabs(y.least))};
  const double step = round_step(y.size(), 5);
  y.least = std::floor(y.least / step + 1e-9) * step;
  y.most = std::ceil(y.most / step - 1e-9) * step;
  const auto px = [&](double value) { return kLeft + (kWidth - kLeft - kRight) * (x.most > x.least ? (value - x.least) / x.size() : 0.5); };
  const auto py = [&](double value) { return kHeight - kBottom - (kHeight - kTop - kBottom) * (value - y.least) / y.size(); };

  std::string text = fmt::format(
      "<figure class=\"chart\" data-x=\"{}\" data-x0=\"{:.17g}\" data-x1=\"{:.17g}\" data-y0=\"{:.17g}\" data-y1=\"{:.17g}\" "
      "data-percent=\"{}\">\n"
      "<figcaption>{}",
      escaped(x_name_), x.least, x.most, y.least, y.most, unit_ == Unit::Percent ? 1 : 0, escaped(title_));
  if (curves_.size() > 1) {
    for (size_t c = 0; c < curves_.size(); ++c) text += fmt::format(" <span class=\"key curve-{}\">{}</span>", c, escaped(curves_[c].name));
  }
  text += fmt::format("</figcaption>\n<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\">\n", kWidth, kHeight, escaped(title_));
  const int y_steps = static_cast<int>(std::lround(y.size() / step));
  for (int n = 0; n <= y_steps; ++n) {
    const double value = y.least + n * step;
    text += fmt::format(
        "<path class=\"grid\" d=\"M{0} {1:.1f}H{2}\"/><text class=\"tick\" x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n", kLeft,
        py(value), kWidth - kRight, kLeft - 6, py(value) + 4, shown(value, step, unit_ == Unit::Percent));
  }
  const double x_step = std::max(1.0, round_step(x.size(), 8));
  const double first_x = std::ceil(x.least / x_step - 1e-9) * x_step;
  for (int n = 0; first_x + n * x_step <= x.most + x_step * 1e-9 && n < 20; ++n) {
    const double value = first_x + n * x_step;
    text += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", px(value), kHeight - kBottom + 16,
                        step_label(value, x_step));
  }
  text +=
      fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kWidth - kRight, kHeight - 3, escaped(x_name_));
  for (size_t c = 0; c < curves_.size(); ++c) {
    const auto& points = curves_[c].points;
    for (size_t begin = 0; begin < points.size();) {
      size_t end = begin + 1;
      while (end < points.size() && points[end].joined) ++end;
      std::string path;
      for (size_t k = begin; k < end; ++k) path += fmt::format("{}{:.1f},{:.1f}", k > begin ? " " : "", px(points[k].x), py(points[k].y));
      if (end - begin == 1 || points.size() <= 40) {
        for (size_t k = begin; k < end; ++k) {
          text +=
              fmt::format("<circle class=\"dot curve-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>", c, px(points[k].x), py(points[k].y));
        }
      }
      if (end - begin > 1)
        text += fmt::format("<polyline class=\"curve curve-{}\" data-name=\"{}\" points=\"{}\"/>\n", c, escaped(curves_[c].name), path);
      begin = end;
    }
  }
  return text + "</svg>\n</figure>\n";
}

}  // namespace penstock::report
