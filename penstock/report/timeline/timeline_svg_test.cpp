#include "penstock/report/timeline/timeline_svg.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/report/testing_xml.h"
#include "penstock/schedule/testing_timelines.h"
#include "penstock/util/error.h"

namespace penstock::report {
namespace {

using schedule::event_of;
using schedule::random_timeline;
using schedule::two_workers;

using schedule::Op;
using schedule::Timeline;

std::vector<std::string> texts(const std::string& svg) {
  std::vector<std::string> result;
  for (const XmlElement& element : XmlReader(svg).elements()) {
    if (element.tag == "text") result.push_back(element.text);
  }
  return result;
}

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

TEST(TimelinePicture, HasWorkersLanesLabelsAxisAndLegend) {
  const Timeline predicted = two_workers("predicted");
  const Timeline measured = two_workers("measured", 23'000);
  const auto found = texts(timeline_svg({&predicted, &measured}, "VGG <16>"));
  for (const char* text :
       {"VGG <16>", "worker 0", "worker 1", "predicted", "measured", "F0", "F1", "B0", "B1", "0",
        "80", "time (us)", "forward (F)", "backward (B), its input part (I)", "idle"}) {
    EXPECT_TRUE(has(found, text)) << text;
  }
  EXPECT_EQ(std::count(found.begin(), found.end(), "F0"), 4) << "two workers, two lanes";
  EXPECT_FALSE(has(found, "optimiser step")) << "there is none";
}

TEST(TimelinePicture, NamesTheStageWhereAWorkerHasSeveral) {
  const Timeline timeline{
      "p",
      {{event_of(Op::Forward, 0, 0, 0, 100), event_of(Op::Forward, 3, 0, 100, 200),
        event_of(Op::BackwardInput, 3, 0, 200, 300), event_of(Op::BackwardWeight, 3, 0, 300, 400),
        event_of(Op::Recompute, 0, 0, 400, 500), event_of(Op::NormGradients, 0, 0, 500, 600)}}};
  const std::string svg = timeline_svg({&timeline});
  const auto found = texts(svg);
  for (const char* text : {"0F0", "3F0", "3I0", "3W0", "0R0", "synchronisation"})
    EXPECT_TRUE(has(found, text)) << text;
  EXPECT_NE(svg.find("fill-opacity"), std::string::npos) << "chunks differ in shade";
}

TEST(TimelinePicture, IsTheSameEveryTime) {
  const Timeline timeline = random_timeline(7, 5, 3, 300);
  EXPECT_EQ(timeline_svg({&timeline}, "t"), timeline_svg({&timeline}, "t"));
}

TEST(TimelinePicture, BarsLieInsideTheFrame) {
  const Timeline timeline = random_timeline(3, 4, 3, 50);
  for (const XmlElement& element : XmlReader(timeline_svg({&timeline})).elements()) {
    if (element.tag != "rect" && element.tag != "text") continue;
    EXPECT_GE(element.number("x"), 0);
    EXPECT_LE(element.number("x") + element.number("width"), 1000.01);
  }
}

TEST(TimelinePicture, OfVeryManyActionsIsBounded) {
  Timeline timeline{"many", std::vector<std::vector<schedule::TimelineEvent>>(4)};
  for (auto& events : timeline.workers) {
    for (int k = 0; k < 50'000; ++k)
      events.push_back(
          event_of(k % 2 == 0 ? Op::Forward : Op::Backward, 0, k, 10 * k, 10 * k + 10));
  }
  EXPECT_LT(timeline_svg({&timeline}).size(), 400'000u);
}

TEST(TimelinePicture, OfTooManyRowsIsRefused) {
  const Timeline timeline{"wide",
                          std::vector<std::vector<schedule::TimelineEvent>>(kMaxPictureRows + 1)};
  EXPECT_THROW(timeline_svg({&timeline}), ConfigError);
  const Timeline nothing;
  EXPECT_NO_THROW(XmlReader(timeline_svg({&nothing})).elements());
}

TEST(TimelinePicture, HostileNamesStayText) {
  Timeline timeline = two_workers("<script>alert(1)</script>");
  const Timeline other = two_workers("]]>&\x01");
  for (const XmlElement& element :
       XmlReader(timeline_svg({&timeline, &other}, "\"><script>")).elements())
    EXPECT_NE(element.tag, "script");
}

}  // namespace
}  // namespace penstock::report
