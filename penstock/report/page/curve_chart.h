// Line charts of a training run as inline SVG; page/curves.js shows the numbers under the pointer,
// which it finds beside each curve as they are: those of the shapes are rounded to pixels. Internal
// to the reports.
//
//   CurveChart chart("Loss", "step");
//   chart.add("training loss", xs, ys);
//   page += chart.to_string();   // nothing when no curve has a point
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::report {

class CurveChart {
 public:
  enum class Unit { Number, Percent };

  CurveChart(std::string title, std::string x_name, Unit unit = Unit::Number)
      : title_(std::move(title)), x_name_(std::move(x_name)), unit_(unit) {}

  /// Points that are not finite are gaps: no line leads across one. At most about 1,500 points are
  /// drawn: of each stretch the lowest and the highest, so that spikes stay. A curve without points
  /// is left out.
  void add(std::string name, const std::vector<double>& xs, const std::vector<double>& ys);
  size_t num_curves() const { return curves_.size(); }
  /// A `<figure>` with a `<g>` per curve, named in data-name, with "x,y x,y" of all points drawn in
  /// data-points; in it one `<polyline class="curve">` per unbroken stretch, or a mark where that
  /// is a single point. The figure's data-reach is how far in x two curves' points of the same
  /// stretch may lie apart; 0 when every point is drawn.
  std::string to_string() const;

 private:
  struct Point {
    double x = 0, y = 0;
    bool joined = false;  ///< to the point before: there is no gap between them
  };
  struct Curve {
    std::string name;
    std::vector<Point> points;
  };
  static std::vector<Point> thinned(const std::vector<double>& xs, const std::vector<double>& ys);
  /// The <g>; px and py turn a point's numbers into places.
  template <class Px, class Py>
  static std::string drawn(const Curve& curve, size_t index, const Px& px, const Py& py);

  std::string title_;
  std::string x_name_;
  Unit unit_;
  std::vector<Curve> curves_;
  bool is_thinned_ = false;  ///< one of them at least
};

}  // namespace penstock::report
