#include "penstock/report/page/curve_chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string points_of(const CurveChart& chart, size_t curve) {
  return chart.to_json()["curves"][curve]["points"].dump();
}

/// Points that a line joins, and points alone.
size_t lines_of(const CurveChart& chart) {
  const Json points = chart.to_json()["curves"][0]["points"];
  return 1 + static_cast<size_t>(std::count(points.begin(), points.end(), Json()));
}

TEST(CurveChart, HasItsPointsAndNames) {
  CurveChart chart("Loss", "step");
  chart.add("loss", {1, 2, 3}, {2, 1, 0.5});
  const Json json = chart.to_json();
  EXPECT_EQ(json["title"].get<std::string>(), "Loss");
  EXPECT_EQ(json["x"].get<std::string>(), "step");
  EXPECT_FALSE(json["percent"].get<bool>());
  EXPECT_EQ(json["curves"][0]["name"].get<std::string>(), "loss");
  EXPECT_EQ(points_of(chart, 0), "[[1.0,2.0],[2.0,1.0],[3.0,0.5]]");
}

TEST(CurveChart, LeavesGapsWhereNumbersAreNotFinite) {
  CurveChart chart("Loss", "step");
  chart.add("loss", {1, 2, 3, 4, 5, 6}, {1, 2, kNan, 3, 4, INFINITY});
  EXPECT_EQ(points_of(chart, 0), "[[1.0,1.0],[2.0,2.0],null,[4.0,3.0],[5.0,4.0]]");
  chart.add("nothing", {1, 2}, {kNan, kNan});
  EXPECT_EQ(chart.num_curves(), 1u);
}

TEST(CurveChart, KeepsSixDigitsOfNumbersAndAllOfSteps) {
  CurveChart chart("Accuracy", "epoch", CurveChart::Unit::Percent);
  chart.add("test", {1, 2, 3}, {0.25, kNan, 1.0 / 3});
  chart.add("training", {1, 2, 9007199254740991}, {0.5, 1e-7, 12345678});
  EXPECT_EQ(points_of(chart, 0), "[[1.0,0.25],null,[3.0,0.333333]]");
  EXPECT_EQ(points_of(chart, 1), "[[1.0,0.5],[2.0,1e-07],[9.007199254740991e+15,12345700.0]]");
  EXPECT_EQ(chart.to_json()["reach"].get<double>(), 0) << "every point is there";
}

// 750 stretches of two or three points.
TEST(CurveChart, JoinsNothingAcrossAGapInAThinnedCurve) {
  for (const size_t stretch : {size_t{2}, size_t{3}}) {
    for (size_t gap = 1; gap < 4 * stretch; ++gap) {
      std::vector<double> xs, ys;
      for (size_t k = 0; k < 750 * stretch; ++k) {
        xs.push_back(static_cast<double>(k));
        ys.push_back(k == gap ? kNan : static_cast<double>(k));
      }
      CurveChart chart("Loss", "step");
      chart.add("loss", xs, ys);
      EXPECT_EQ(lines_of(chart), 2u) << "stretches of " << stretch << ", gap at " << gap;
      EXPECT_EQ(chart.to_json()["reach"].get<double>(),
                static_cast<double>(750 * stretch - 1) / 750);
    }
  }
}

TEST(CurveChart, OfNothingHasNoCurves) {
  CurveChart chart("Loss", "step");
  chart.add("loss", {}, {});
  chart.add("loss", {1}, {kNan});
  EXPECT_EQ(chart.num_curves(), 0u);
}

TEST(CurveChart, KeepsSpikesOfLongRunsAndStaysSmall) {
  std::vector<double> xs, ys;
  for (int k = 0; k < 200'000; ++k) {
    xs.push_back(k);
    ys.push_back(k == 123'456 ? 10 : 1);
  }
  CurveChart chart("Norm", "step");
  chart.add("norm", xs, ys);
  EXPECT_LT(chart.to_json().dump().size(), 40'000u);
  EXPECT_NE(points_of(chart, 0).find("[123456.0,10.0]"), std::string::npos);
}

TEST(CurveChart, TakesAnyNumbers) {
  for (const auto& [xs, ys] : std::vector<std::pair<std::vector<double>, std::vector<double>>>{
           {{0}, {0}},
           {{5, 5}, {1, 1}},
           {{9e15, 9e15 + 2}, {1e299, -1e299}},
           {{0, 1}, {5e-324, 0}},
           {{0, 1, 2}, {1e308, -1e308, 1}}}) {
    CurveChart chart("any", "step");
    chart.add("a", xs, ys);
    const std::string points = points_of(chart, 0);
    EXPECT_NE(points.find("[["), std::string::npos) << points;
    EXPECT_EQ(points.find("[null"), std::string::npos) << points;
  }
}

}  // namespace
}  // namespace penstock::report
