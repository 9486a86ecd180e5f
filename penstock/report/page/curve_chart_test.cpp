#include "penstock/report/page/curve_chart.h"

#include <gtest/gtest.h>

#include <cmath>

#include "penstock/report/testing_xml.h"

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

TEST(CurveChart, HasTheNumbersOfItsPointsBesideEachCurve) {
  CurveChart chart("Accuracy", "epoch", CurveChart::Unit::Percent);
  chart.add("test", {1, 2, 3}, {0.25, kNan, 1.0 / 3});
  chart.add("training", {1, 2, 9007199254740991}, {0.5, 1e-7, 12345678});
  const auto groups = elements(chart, "g");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].attributes.at("data-name"), "test");
  EXPECT_EQ(groups[0].attributes.at("data-points"), "1,0.25 3,0.333333")
      << "both sides of the gap, where no line is";
  EXPECT_EQ(groups[1].attributes.at("data-points"), "1,0.5 2,1e-07 9007199254740991,1.23457e+07");
  EXPECT_EQ(elements(chart, "polyline").size(), 1u);
  EXPECT_EQ(elements(chart, "figure").at(0).number("data-reach"), 0) << "every point is there";
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
      const size_t lines = elements(chart, "polyline").size();
      const size_t lone = elements(chart, "circle").size();
      EXPECT_EQ(lines + lone, 2u) << "stretches of " << stretch << ", gap at " << gap;
      EXPECT_EQ(elements(chart, "figure").at(0).number("data-reach"),
                static_cast<double>(750 * stretch - 1) / 750);
    }
  }
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
  EXPECT_NE(elements(chart, "polyline").at(0).attributes.at("points").find(",12.0"),
            std::string::npos)
      << "the spike reaches the top";
}

TEST(CurveChart, TakesAnyNumbers) {
  for (const auto& [xs, ys] : std::vector<std::pair<std::vector<double>, std::vector<double>>>{
           {{0}, {0}},
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

}  // namespace
}  // namespace penstock::report
