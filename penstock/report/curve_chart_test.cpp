#include "penstock/report/curve_chart.h"

#include <gtest/gtest.h>

#include <cmath>

#include "penstock/report/testing_xml.h"
#include "penstock/report/time_axis.h"

namespace penstock::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<XmlElement> elements(const CurveChart& chart, const std::string& tag) {
  std::vector<XmlElement> result;
  for (const XmlElement& element : XmlReader(chart.to_string()).elements()) {
    if (element.tag == tag) result.push_back(element);
  }
  return result;
}

TEST(CurveChart, DrawsACurveWithAxes) {
  CurveChart chart("Loss", "step");
  chart.add("loss", {1, 2, 3}, {2, 1, 0.5});
  const auto lines = elements(chart, "polyline");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].attributes.at("points"), "58.0,12.0 332.0,84.0 606.0,120.0");
  EXPECT_EQ(elements(chart, "figcaption").at(0).text, "Loss");
}

TEST(CurveChart, LeavesGapsWhereNumbersAreNotFinite) {
  CurveChart chart("Loss", "step");
  chart.add("loss", {1, 2, 3, 4, 5, 6}, {1, 2, kNan, 3, 4, INFINITY});
  EXPECT_EQ(elements(chart, "polyline").size(), 2u);
  chart.add("nothing", {1, 2}, {kNan, kNan});
  EXPECT_EQ(chart.num_curves(), 1u);
}

TEST(CurveChart, OfNothingIsNothing) {
  CurveChart chart("Loss", "step");
  chart.add("loss", {}, {});
  chart.add("loss", {1}, {kNan});
  EXPECT_EQ(chart.to_string(), "");
}

TEST(CurveChart, KeepsSpikesOfLongRunsAndStaysSmall) {
  std::vector<double> xs, ys;
  for (int k = 0; k < 200'000; ++k) {
    xs.push_back(k);
    ys.push_back(k == 123'456 ? 10 : 1);
  }
  CurveChart chart("Norm", "step");
  chart.add("norm", xs, ys);
  EXPECT_LT(chart.to_string().size(), 40'000u);
  EXPECT_NE(elements(chart, "polyline").at(0).attributes.at("points").find(",12.0"), std::string::npos) << "the spike reaches the top";
}

TEST(CurveChart, TakesAnyNumbers) {
  for (const auto& [xs, ys] : std::vector<std::pair<std::vector<double>, std::vector<double>>>{{{0}, {0}},
                                                                                               {{5, 5}, {1, 1}},
                                                                                               {{9e15, 9e15 + 2}, {1e299, -1e299}},
                                                                                               {{0, 1}, {1e20, 1e20 + 16384}},
                                                                                               {{0, 1}, {5e-324, 0}},
                                                                                               {{0, 1, 2}, {1e308, -1e308, 1}}}) {
    CurveChart chart("any", "step");
    chart.add("a", xs, ys);
    const std::string text = chart.to_string();
    EXPECT_EQ(text.find("nan"), std::string::npos) << text;
    EXPECT_EQ(text.find("inf"), std::string::npos) << text;
    EXPECT_LT(text.size(), 20'000u);
    EXPECT_NO_THROW(XmlReader(text).elements());
  }
}

TEST(CurveChart, EscapesNames) {
  CurveChart chart("<b>", "\"step\"");
  chart.add("<i>", {1, 2}, {1, 2});
  chart.add("&", {1, 2}, {2, 1});
  EXPECT_NO_THROW(XmlReader(chart.to_string()).elements());
  EXPECT_EQ(chart.to_string().find("<b>"), std::string::npos);
}

TEST(TimeAxis, HasRoundTicksInTheUnitThatSuits) {
  const TimeAxis axis = time_axis(0, 2.5e6, 6);
  EXPECT_EQ(axis.unit, "ms");
  ASSERT_EQ(axis.ticks.size(), 6u);
  EXPECT_EQ(axis.ticks[1].label, "0.5");
  EXPECT_EQ(axis.ticks[5].ns, 2.5e6);
  EXPECT_EQ(time_axis(0, 0, 6).ticks.size(), 1u);
  EXPECT_LE(time_axis(0, 9e18, 6).ticks.size(), 8u);
}

}  // namespace
}  // namespace penstock::report
