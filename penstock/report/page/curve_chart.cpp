#include "penstock/report/page/curve_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace penstock::report {

namespace {

constexpr size_t kMostStretches = 750;
constexpr double kLargest = 1e300;  // differences of larger numbers are not finite

// More digits than anyone reads off a curve would make the page larger.
double six_digits(double value) {
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
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

Json CurveChart::to_json() const {
  Json curves = Json::array();
  double least_x = INFINITY;
  double most_x = -INFINITY;
  for (const Curve& curve : curves_) {
    Json points = Json::array();
    for (const Point& point : curve.points) {
      if (!points.empty() && !point.joined) points.push_back(nullptr);
      points.push_back({point.x, six_digits(point.y)});
      least_x = std::min(least_x, point.x);
      most_x = std::max(most_x, point.x);
    }
    curves.push_back({{"name", curve.name}, {"points", std::move(points)}});
  }
  return {{"title", title_},
          {"x", x_name_},
          {"percent", unit_ == Unit::Percent},
          {"reach", is_thinned_ ? (most_x - least_x) / static_cast<double>(kMostStretches) : 0.0},
          {"curves", std::move(curves)}};
}

}  // namespace penstock::report
