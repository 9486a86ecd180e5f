#include "penstock/report/plan/plan_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "penstock/report/plan/testing_plans.h"
#include "penstock/report/testing_xml.h"
#include "penstock/report/text/svg.h"
#include "penstock/report/text/text.h"

namespace penstock::report {
namespace {

std::vector<XmlElement> drawn(const plan::Plan& plan) {
  return XmlReader(plan_picture(PlanView(plan))).elements();
}

std::vector<std::string> texts(const std::vector<XmlElement>& elements,
                               std::string_view style = "") {
  std::vector<std::string> result;
  for (const XmlElement& element : elements) {
    if (element.tag == "text" && (style.empty() || element.style() == style))
      result.push_back(element.text);
  }
  return result;
}

int count(const std::vector<XmlElement>& elements, const std::string& style) {
  return static_cast<int>(
      std::count_if(elements.begin(), elements.end(),
                    [&](const XmlElement& element) { return element.style() == style; }));
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

Box extent(const XmlElement& text) {
  const std::string style = text.style().substr(3);
  const double height = style == "title" ? 20 : style == "name" ? 14 : 12;
  const double width = text_width(text.text, style);
  const std::string anchor =
      text.attributes.contains("text-anchor") ? text.attributes.at("text-anchor") : "start";
  const double left = text.number("x") - (anchor == "middle" ? width / 2
                                          : anchor == "end"  ? width
                                                             : 0);
  return {left, text.number("y") - 0.75 * height, width, 0.9 * height};
}

bool overlap(const Box& a, const Box& b) {
  return a.x < b.right() - 0.5 && b.x < a.right() - 0.5 && a.y < b.bottom() - 0.5 &&
         b.y < a.bottom() - 0.5;
}

TEST(PlanPicture, OfVgg16ShowsStagesLinkAndPlaces) {
  const std::vector<XmlElement> elements = drawn(vgg_plan());
  const std::vector<std::string> all = texts(elements);
  for (const char* text :
       {"vgg16: 1f1b 15-1", "stage 0", "stage 1", "conv1_1 .. pool5 (4 layers)",
        "15 replicas on workers 0-14", "worker 15", "server 0-3", "server 3",
        "48.9 ms per micro-batch", "memory 4.24 GB of 16.0 GB", "6.42 MB", "10.3 ms", "rack"}) {
    EXPECT_TRUE(contains(all, text)) << text;
  }
  EXPECT_EQ(count(elements, "pp-frame"), 4) << "a frame for each server";
  EXPECT_EQ(count(elements, "pp-cell-hot"), 15);
  EXPECT_EQ(count(elements, "pp-odd"), 1);
  EXPECT_EQ(count(elements, "pp-hot-stack"), 3) << "replicas are boxes behind the card";
}

TEST(PlanPicture, CardsNameTheirTimesAndLayers) {
  plan::Plan plan = vgg_plan();
  plan.stages[1].recompute = true;
  std::vector<std::string> titles;
  for (const XmlElement& element : drawn(plan)) {
    if (element.tag == "title" && element.text.starts_with("stage "))
      titles.push_back(element.text);
  }
  EXPECT_TRUE(contains(titles,
                       "stage 0: forward 230 ms, backward 460 ms, synchronisation 40.0 ms, step "
                       "3.00 ms, weights 60.0 MB; conv1_1, relu1_1, "
                       "conv1_2, pool5"));
  EXPECT_TRUE(contains(titles,
                       "stage 1: forward 12.0 ms, backward 24.0 ms, recomputation 12.0 ms, "
                       "synchronisation 0 ns, step 3.00 ms, weights 470 MB; "
                       "fc6, fc7, fc8"));
}

TEST(PlanPicture, MarksTheSlowestPartOnceAndInWords) {
  EXPECT_EQ(texts(drawn(vgg_plan()), "pp-pill-text"), std::vector<std::string>{"slowest"});
  plan::Plan slow_link = vgg_plan();
  slow_link.links[0].bytes = 100'000'000;
  const std::vector<XmlElement> elements = drawn(slow_link);
  EXPECT_EQ(texts(elements, "pp-pill-text"), std::vector<std::string>{"slowest"});
  EXPECT_EQ(count(elements, "pp-hot"), 0);
  EXPECT_EQ(count(elements, "pp-line-hot"), 1);
  EXPECT_TRUE(contains(texts(elements, "pp-accent"),
                       "slowest part: the link from stage 0 to stage 1, 160 ms per micro-batch"));
}

TEST(PlanPicture, BarsHaveTheLengthOfTheirTimes) {
  double forward = 0;
  double backward = 0;
  for (const XmlElement& element : drawn(vgg_plan())) {
    // The legend's samples are 12 high, bars 14.
    if (element.tag != "rect" || element.number("height") != 14) continue;
    if (element.style() == "pp-forward" && forward == 0) forward = element.number("width");
    if (element.style() == "pp-backward" && backward == 0) backward = element.number("width");
  }
  EXPECT_NEAR(backward, 2 * forward, 0.2);
}

TEST(PlanPicture, IsWellFormedBoundedAndInsideItsFrame) {
  for (const auto& [name, plan] : sample_plans()) {
    const std::string document = plan_picture(PlanView(plan));
    EXPECT_LT(document.size(), 200'000u) << name;
    const std::vector<XmlElement> elements = XmlReader(document).elements();
    ASSERT_EQ(elements.front().tag, "svg");
    const double width = elements.front().number("width");
    const double height = elements.front().number("height");
    for (const XmlElement& element : elements) {
      if (element.tag == "rect") {
        EXPECT_GE(element.number("x"), 0) << name;
        EXPECT_LE(element.number("x") + element.number("width"), width)
            << name << " " << element.style();
        EXPECT_LE(element.number("y") + element.number("height"), height)
            << name << " " << element.style();
      } else if (element.tag == "text") {
        const Box box = extent(element);
        EXPECT_GE(box.x, 0) << name << ": " << element.text;
        EXPECT_LE(box.right(), width) << name << ": " << element.text;
        EXPECT_LE(box.bottom(), height) << name << ": " << element.text;
      }
    }
  }
}

TEST(PlanPicture, TextsDoNotOverlap) {
  for (const auto& [name, plan] : sample_plans()) {
    std::vector<XmlElement> all;
    for (XmlElement& element : XmlReader(plan_picture(PlanView(plan))).elements()) {
      if (element.tag == "text") all.push_back(std::move(element));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        EXPECT_FALSE(overlap(extent(all[i]), extent(all[k])))
            << name << ": '" << all[k].text << "' and '" << all[i].text << "'";
      }
    }
  }
}

TEST(PlanPicture, CardsDoNotOverlap) {
  for (const int stages : {2, 5, 16}) {
    std::vector<Box> cards;
    for (const XmlElement& element : drawn(chain_plan(stages, 1))) {
      if (element.tag != "rect" || (element.style() != "pp-card" && element.style() != "pp-hot"))
        continue;
      cards.push_back({element.number("x"), element.number("y"), element.number("width"),
                       element.number("height")});
    }
    EXPECT_EQ(cards.size(), static_cast<size_t>(stages));
    for (size_t i = 0; i < cards.size(); ++i) {
      for (size_t k = 0; k < i; ++k) EXPECT_FALSE(overlap(cards[i], cards[k])) << stages;
    }
  }
}

TEST(PlanPicture, VeryManyStagesHaveNoCardsAndVeryManyWorkersNoBoxes) {
  EXPECT_TRUE(contains(texts(drawn(chain_plan(32, 1)), "pp-name"), "stage 31"));
  const std::vector<XmlElement> elements = drawn(chain_plan(3000, 1));
  EXPECT_EQ(count(elements, "pp-card") + count(elements, "pp-hot"), 0);
  EXPECT_EQ(count(elements, "pp-frame"), 0);
  EXPECT_FALSE(texts(elements, "pp-accent").empty()) << "the slowest part is named";
}

TEST(PlanPicture, HostileNamesStayText) {
  const std::string document = plan_picture(PlanView(hostile_plan()));
  const std::vector<XmlElement> elements = XmlReader(document).elements();
  const std::set<std::string> known = {"svg",  "title", "style", "defs", "marker",
                                       "path", "rect",  "text",  "g",    "line"};
  for (const XmlElement& element : elements) {
    EXPECT_TRUE(known.contains(element.tag)) << element.tag;
    for (const auto& [name, value] : element.attributes)
      EXPECT_FALSE(name.starts_with("on")) << name;
  }
  EXPECT_EQ(document.find('\x1b'), std::string::npos);
}

TEST(PlanPicture, CarriesItsOwnDarkStyleAndNeedsNoNetwork) {
  const std::string document = plan_picture(PlanView(vgg_plan()));
  EXPECT_NE(document.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(document.find("http", document.find("http://www.w3.org/2000/svg") + 4),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::report
