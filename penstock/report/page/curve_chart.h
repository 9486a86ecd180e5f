// Line charts of a training run as data, which page/chart.js draws. Internal to the reports.
//
//   CurveChart chart("Loss", "step");
//   chart.add("training loss", xs, ys);
//   if (chart.num_curves() > 0) charts.push_back(chart.to_json());
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "penstock/util/files/json.h"

namespace penstock::report {

class CurveChart {
 public:
  enum class Unit { Number, Percent };

  CurveChart(std::string title, std::string x_name, Unit unit = Unit::Number)
      : title_(std::move(title)), x_name_(std::move(x_name)), unit_(unit) {}

  /// Points that are not finite are gaps: no line leads across one. At most about 1,500 points are
  /// kept: of each stretch the lowest and the highest, so that spikes stay. A curve without points
  /// is left out.
  void add(std::string name, const std::vector<double>& xs, const std::vector<double>& ys);
  size_t num_curves() const { return curves_.size(); }
  /// {title, x, percent, reach, curves: [{name, points: [[x, y], null, ...]}]}: null where a gap
  /// is; `reach` is how far in x two curves' points of the same stretch may lie apart, 0 when every
  /// point is there. Numbers have six digits, steps all of theirs.
  Json to_json() const;

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

  std::string title_;
  std::string x_name_;
  Unit unit_;
  std::vector<Curve> curves_;
  bool is_thinned_ = false;  ///< one of them at least
};

}  // namespace penstock::report
